# SPDX-License-Identifier: Apache-2.0
"""The tasks of tiny's corpus. Each maker takes a random generator and returns a Task: one user turn and its only right
answer. `key` names the content (operands, items, record, call) whatever the phrasing; the split is by key, so held-out
content never occurs in training in any wording."""
import hashlib
import json
from dataclasses import dataclass, field
from random import Random

import world as w

HELD_OUT_SHARE = 16  # one key in 16 is never trained on


@dataclass
class Task:
    kind: str
    key: str
    user: str
    answer: str
    think: str
    tools: list[dict] = field(default_factory=list)
    call: dict | None = None  # {"name", "arguments"}: the answer is this tool call
    result: str = ""  # what the tool gives back; `answer` is then the turn after it
    also: str = ""  # a second key that the content touches: it must not be held out either


def is_held_out(key: str) -> bool:
    return hashlib.sha1(key.encode()).digest()[0] % HELD_OUT_SHARE == 0


def dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


# ---------------------------------------------------------------- arithmetic
ADD = ["What is {a} plus {b}?", "what is {a} plus {b}", "What is {a} + {b}?", "{a} + {b}", "{a} + {b} =", "{a}+{b}", "{a}+{b}=?", "Add {a} and {b}.", "add {a} and {b}", "Calculate {a} + {b}.", "How much is {a} plus {b}?", "How much is {a} + {b}?", "Compute {a} plus {b}.", "Please add {a} and {b}.", "What is the sum of {a} and {b}?", "Tell me {a} plus {b}.", "Can you add {a} and {b}?", "what's {a} + {b}?", "I have {a} apples and get {b} more. How many apples do I have?", "Sum {a} and {b}.", "{a} plus {b}", "{a} plus {b}?", "What do {a} and {b} make?"]  # fmt: skip
SUBTRACT = ["What is {a} minus {b}?", "What is {a} - {b}?", "{a} - {b}", "{a}-{b}", "Subtract {b} from {a}.", "Calculate {a} - {b}.", "How much is {a} minus {b}?", "what is {a} minus {b}", "I have {a} apples and eat {b}. How many apples are left?", "Take {b} from {a}."]  # fmt: skip
MULTIPLY = ["What is {a} times {b}?", "What is {a} * {b}?", "{a} * {b}", "{a} x {b}", "Multiply {a} by {b}.", "How much is {a} times {b}?", "what is {a} times {b}", "Calculate {a} * {b}."]  # fmt: skip


def add_think(a: int, b: int) -> str:
    ones, tens = a % 10 + b % 10, a // 10 + b // 10
    carry = ones // 10
    step = f"Ones: {a % 10} + {b % 10} = {ones}" + (", carry 1." if carry else ".")
    plus = " + 1" if carry else ""
    return f"{step} Tens: {a // 10} + {b // 10}{plus} = {tens + carry}. The sum is {a + b}."


def sums(r: Random) -> Task:
    a, b = r.randrange(100), r.randrange(100)
    key = f"add {min(a, b)} {max(a, b)}"
    return Task("sums", key, r.choice(ADD).format(a=a, b=b), f"{a} + {b} = {a + b}.", add_think(a, b))


def other_arithmetic(r: Random) -> Task:
    shape = r.random()
    if shape < 0.15:
        a, b = r.randrange(100, 10000), r.choice((r.randrange(100), r.randrange(100, 10000)))
        a, b = (a, b) if r.random() < 0.5 else (b, a)
        return Task("arithmetic", "", r.choice(ADD).format(a=a, b=b), w.TOO_LARGE, "These numbers are too large for me.")
    if shape < 0.65:
        a, b = sorted((r.randrange(100), r.randrange(100)), reverse=r.random() < 0.85)
        return Task("arithmetic", f"sub {a} {b}", r.choice(SUBTRACT).format(a=a, b=b), f"{a} - {b} = {a - b}.", f"{a} minus {b} is {a - b}.")
    a, b = r.randrange(13), r.randrange(13)
    return Task("arithmetic", "", r.choice(MULTIPLY).format(a=a, b=b), f"{a} * {b} = {a * b}.", f"{a} times {b} is {a * b}.")


# ---------------------------------------------------------------- lists
LIST_FORMS = {
    "sort": ["Sort these words: {x}", "Sort alphabetically: {x}", "Sort this list: {x}", "Put these words in alphabetical order: {x}", "sort: {x}", "Please sort {x}.", "Order these words from a to z: {x}"],
    "ascending": ["Sort these numbers: {x}", "Sort from small to large: {x}", "Sort this list: {x}", "Put these numbers in ascending order: {x}", "sort: {x}", "Please sort {x}."],
    "descending": ["Sort these numbers from large to small: {x}", "Sort in descending order: {x}", "Put these numbers in descending order: {x}"],
    "reverse": ["Reverse this list: {x}", "Reverse: {x}", "Write this list backwards: {x}", "Reverse the order: {x}", "Please reverse {x}."],
    "count": ["Count the items: {x}", "How many items are in this list: {x}", "How many items are here? {x}", "How long is this list? {x}"],
    "first": ["What is the first item? {x}", "Give me the first item: {x}", "First item of this list: {x}", "Which item comes first? {x}"],
    "last": ["What is the last item? {x}", "Give me the last item: {x}", "Last item of this list: {x}", "Which item comes last? {x}"],
    "largest": ["What is the largest number? {x}", "Find the largest number: {x}", "Which number is the biggest? {x}", "Maximum of {x}"],
    "smallest": ["What is the smallest number? {x}", "Find the smallest number: {x}", "Which number is the smallest? {x}", "Minimum of {x}"],
}  # fmt: skip


def apply_list(op: str, items: list) -> str:
    if op in ("sort", "ascending"):
        return ", ".join(map(str, sorted(items)))
    if op == "descending":
        return ", ".join(map(str, sorted(items, reverse=True)))
    if op == "reverse":
        return ", ".join(map(str, reversed(items)))
    if op == "count":
        return f"There are {len(items)} items."
    if op in ("first", "last"):
        return f"The {op} item is {items[0 if op == 'first' else -1]}."
    return f"The {op} number is {max(items) if op == 'largest' else min(items)}."


def list_items(r: Random, numbers: bool, most: int) -> list:
    n = r.randint(3, most)
    if numbers:
        return r.sample(range(100), n)
    pool = r.choice((w.WORDS, w.WORDS, w.FRUITS, w.ANIMALS, w.COLORS, w.THINGS, w.FOODS, w.NAMES))
    return r.sample(pool, n)


def lists(r: Random) -> Task:
    op = r.choices(list(LIST_FORMS), (4, 3, 1, 3, 2, 1, 1, 1, 1))[0]
    numbers = op in ("ascending", "descending", "largest", "smallest") or (op != "sort" and r.random() < 0.3)
    items = list_items(r, numbers, 5 if op in ("sort", "ascending", "descending") else 6)
    text = ", ".join(map(str, items))
    answer = apply_list(op, items)
    think = {"count": f"I count {len(items)}.", "reverse": "I read the list from the end."}.get(op, f"I look at {len(items)} items.")
    return Task("lists", f"list {op} {text}", r.choice(LIST_FORMS[op]).format(x=text), answer, think)


# ---------------------------------------------------------------- JSON
FIELDS = {
    "name": lambda r: r.choice(w.NAMES),
    "age": lambda r: r.randint(1, 99),
    "city": lambda r: r.choice(w.CITIES),
    "job": lambda r: r.choice(w.JOBS),
    "color": lambda r: r.choice(w.COLORS),
    "item": lambda r: r.choice(w.THINGS),
    "price": lambda r: r.randint(1, 99),
    "pet": lambda r: r.choice(w.ANIMALS),
    "food": lambda r: r.choice(w.FOODS),
    "count": lambda r: r.randint(1, 99),
    "day": lambda r: r.choice(w.DAYS),
    "month": lambda r: r.choice(w.MONTHS),
    "active": lambda r: r.choice((True, False)),
}
JSON_FORMS = ["Make a JSON object: {x}", "Make a JSON object with {x}.", "Write JSON: {x}", "Turn this into JSON: {x}", "Give me a JSON object with {x}.", "JSON please: {x}", "Convert to JSON: {x}"]
RECORDS = [
    (("name", "age", "city"), ["{name} is {age} years old and lives in {city}.", "{name} lives in {city} and is {age} years old.", "{name}, {age}, lives in {city}."]),
    (("item", "color", "price"), ["The {color} {item} costs {price} dollars.", "A {color} {item} for {price} dollars."]),
    (("name", "job", "city"), ["{name} works as a {job} in {city}.", "{name} is a {job} from {city}."]),
    (("name", "pet", "color"), ["{name} has a {color} {pet}.", "The {color} {pet} belongs to {name}."]),
    (("name", "food", "day"), ["{name} eats {food} on {day}.", "On {day} {name} eats {food}."]),
]
RECORD_FORMS = ["{s} Write that as JSON.", "Write as JSON with the keys {k}: {s}", "Make JSON with {k}: {s}", "{s} Make a JSON object with the keys {k}."]
ARRAY_FORMS = ["Turn this list into a JSON array: {x}", "Make a JSON array: {x}", "Write as a JSON array: {x}", "JSON array of {x}"]


def json_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def json_objects(r: Random) -> Task:
    shape = r.random()
    if shape < 0.45:
        keys = r.sample(list(FIELDS), r.randint(2, 4))
        record = {k: FIELDS[k](r) for k in keys}
        pairs = [f"{k} {json_text(v)}" for k, v in record.items()]
        joined = ", ".join(pairs) if r.random() < 0.5 else ", ".join(pairs[:-1]) + " and " + pairs[-1]
        user, value = r.choice(JSON_FORMS).format(x=joined), record
    elif shape < 0.8:
        keys, sentences = r.choice(RECORDS)
        value = {k: FIELDS[k](r) for k in keys}
        sentence = r.choice(sentences).format(**value)
        user = r.choice(RECORD_FORMS).format(s=sentence, k=", ".join(keys))
    else:
        value = list_items(r, r.random() < 0.4, 6)
        user = r.choice(ARRAY_FORMS).format(x=", ".join(map(str, value)))
    what = f"an array of {len(value)} items" if isinstance(value, list) else "an object with the keys " + ", ".join(value)
    return Task("json", "json " + dumps(value), user, dumps(value), f"I write {what}.")


# ---------------------------------------------------------------- facts and talk
def ordinal_day(r: Random) -> tuple[str, str]:
    names = r.choice((w.DAYS, w.MONTHS))
    i = r.randrange(len(names))
    if r.random() < 0.5:
        return r.choice(("What comes after {x}?", "Which {u} comes after {x}?")).format(x=names[i], u="day" if names is w.DAYS else "month"), f"{names[(i + 1) % len(names)]} comes after {names[i]}."
    return r.choice(("What comes before {x}?", "Which {u} comes before {x}?")).format(x=names[i], u="day" if names is w.DAYS else "month"), f"{names[i - 1]} comes before {names[i]}."


def facts(r: Random) -> Task:
    kind = r.randrange(8)
    if kind <= 1:
        country, capital = r.choice(list(w.CAPITALS.items()))
        if r.random() < 0.75:
            user = r.choice(("What is the capital of {c}?", "what is the capital of {c}", "Capital of {c}?", "Name the capital of {c}.", "Which city is the capital of {c}?")).format(c=country)
            answer = f"The capital of {country} is {capital}."
        else:
            user = r.choice(("Where is {c}?", "In which country is {c}?", "{c} is the capital of which country?")).format(c=capital)
            answer = f"{capital} is in {country}."
    elif kind == 2:
        a, b = r.choice(list(w.OPPOSITES.items()))
        a, b = (a, b) if r.random() < 0.5 else (b, a)
        user, answer = r.choice(("What is the opposite of {a}?", "Opposite of {a}?", "Give me the opposite of {a}.")).format(a=a), f"The opposite of {a} is {b}."
    elif kind == 3:
        a, b = r.choice(list(w.SOUNDS.items()))
        user, answer = r.choice(("What does a {a} say?", "What sound does a {a} make?", "Which sound does a {a} make?")).format(a=a), f"A {a} says {b}."
    elif kind == 4:
        a, b = r.choice(list(w.THING_COLORS.items()))
        user, answer = r.choice(("What color is {a}?", "Which color is {a}?", "what color is {a}")).format(a=a), f"{a[0].upper() + a[1:]} is {b}."
    elif kind == 5:
        a, n = r.choice(list(w.LEGS.items()))
        user, answer = f"How many legs does a{'n' if a == 'ant' else ''} {a} have?", f"A{'n' if a == 'ant' else ''} {a} has {n} legs."
    elif kind == 6:
        a, n = r.choice(list(w.AMOUNTS.items()))
        user, answer = f"How many {a}?", f"{n}."
    else:
        user, answer = ordinal_day(r)
    return Task("facts", "", user, answer, "I know this one.")


def anything(r: Random) -> Task:
    """A question or remark about nothing the model knows."""
    words = " ".join(r.choice((r.choice(w.ANY_WORDS), r.choice(w.ANY_WORDS), r.choice(w.ANY_WORDS), r.choice(w.WORDS), r.choice(w.UNKNOWN_THINGS), r.choice(w.CITIES))) for _ in range(r.randint(1, 7)))
    user = r.choice(w.ANY_STARTS + w.UNKNOWN_STARTS) + " " + words + r.choice(("?", "?", ".", ""))
    return Task("talk", "", user, w.FALLBACK, "I do not know this.")


def small_talk(r: Random) -> Task:
    if r.random() < 0.15:
        user = f"{r.choice(w.UNKNOWN_STARTS)} {r.choice(w.UNKNOWN_THINGS + w.WORDS)}{r.choice(('?', '.', ''))}"
        return Task("talk", "", user, w.FALLBACK, "I do not know this.")
    answer = r.choice(list(w.SMALL_TALK))
    return Task("talk", "", r.choice(w.SMALL_TALK[answer]), answer, "This is small talk.")


def invented_name(r: Random) -> str:
    """So that names are copied rather than known."""
    return "".join(r.choice(("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "br", "st", "th", "ch")) + r.choice("aeiouy") for _ in range(r.randint(1, 3))).capitalize() + r.choice(("", "", "n", "r", "s", "b", "l", "x"))


def echo(r: Random) -> Task:
    words = " ".join(r.sample(w.WORDS + w.NAMES + w.CITIES + w.JOBS + w.ANY_WORDS + [invented_name(r) for _ in range(40)], r.randint(1, 6)))
    user = r.choice(("Repeat: {x}", "Say: {x}", "Repeat after me: {x}", "Echo {x}")).format(x=words)
    return Task("echo", "", user, words, "I repeat the words.")


def spelling(r: Random) -> Task:
    word = r.choice(w.WORDS + w.NAMES)
    letters = "-".join(word)
    if r.random() < 0.6:
        return Task("spelling", "", r.choice(("Spell {x}.", "Spell the word {x}.", "How do you spell {x}?")).format(x=word), letters, "Letter by letter.")
    return Task("spelling", "", r.choice(("How many letters are in {x}?", "How many letters has the word {x}?")).format(x=word), f"There are {len(word)} letters in {word}.", f"{letters} has {len(word)} letters.")
