# SPDX-License-Identifier: Apache-2.0
"""tiny's training corpus: an endless, seeded stream of chat documents, and the held-out prompts of the score.

    python corpus.py --show 5 [--seed 0]          print documents
    python corpus.py --held-out 500 --out FILE    the scored prompts as JSON lines

Licence of everything generated: Apache-2.0. Training documents never contain content whose key is held out
(tasks.is_held_out); scored prompts consist of nothing else.
"""
import argparse
import importlib.util
import json
import sys
from pathlib import Path
from random import Random
from typing import Callable, Iterator

sys.path.insert(0, str(Path(__file__).parent))
import world as w  # noqa: E402
from tasks import Task, anything, dumps, echo, facts, invented_name, is_held_out, json_objects, lists, other_arithmetic, small_talk, spelling, sums  # noqa: E402
from tool_tasks import call_task, no_tool, offer, tool_calls  # noqa: E402

ENCODER_PATH = Path(__file__).parents[2] / "models/tiny/encoding/encoding_dsv4.py"
SCORED: dict[str, Callable[[Random], Task]] = {"sums": sums, "lists": lists, "json": json_objects, "tools": tool_calls}
# Held-out pairs that the shipped weights' first training met as the arguments of an adding tool, found by generating its stream
# again; they are not scored. Since then draw() keeps such calls out (Task.also).
SEEN_SUMS = frozenset(
    """
    0+31 0+42 0+66 0+96 1+13 2+48 2+55 6+31 6+41 8+16 8+32 8+75 8+84 9+34 9+64 9+71 10+95 11+68 13+62 18+67 19+43
    19+61 20+27 20+34 20+79 21+21 21+97 24+79 26+39 27+73 28+71 29+99 35+96 36+70 41+54 43+66 47+62 47+71 47+74
    48+66 49+78 51+94 58+90 64+77 66+85 69+78 72+80 87+87 87+91 88+95
    """.split()
)
SIMPLE = (sums, lists, json_objects, facts, small_talk, other_arithmetic, echo, spelling, anything, no_tool)
SIMPLE_WEIGHTS = (20, 26, 20, 10, 12, 6, 4, 3, 14, 7)


def load_encoder():
    spec = importlib.util.spec_from_file_location("encoding_dsv4", ENCODER_PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


encoder = load_encoder()


def draw(r: Random, maker: Callable[[Random], Task], held_out: bool = False) -> Task:
    """A task on the wanted side of the split. Tasks without a key are closed facts: training only."""
    while True:
        task = maker(r)
        if not held_out and task.also and is_held_out(task.also):
            continue
        if (bool(task.key) and is_held_out(task.key)) == held_out:
            return task


def simple(r: Random) -> Task:
    return draw(r, r.choices(SIMPLE, SIMPLE_WEIGHTS)[0])


# ---------------------------------------------------------------- dialogues
def turn(task: Task, thinking: bool, call_id: str = "call_0") -> list[dict]:
    """The messages of one task; a tool task is four of them."""
    reasoning = {"reasoning_content": task.think} if thinking else {}
    messages: list[dict] = [{"role": "user", "content": task.user}]
    if task.call:
        call = {"id": call_id, "type": "function", "function": {"name": task.call["name"], "arguments": dumps(task.call["arguments"])}}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call], **reasoning})
        messages.append({"role": "tool", "tool_call_id": call_id, "content": task.result})
        reasoning = {"reasoning_content": "I read the result."} if thinking else {}
    messages.append({"role": "assistant", "content": task.answer, **reasoning})
    return messages


def system(r: Random, tools: list[dict] | None = None) -> list[dict]:
    text = r.choice(w.SYSTEM_PROMPTS) if r.random() < 0.25 else ""
    if tools:
        return [{"role": "system", "content": text, "tools": tools}]
    return [{"role": "system", "content": text}] if text else []


def memory(r: Random) -> tuple[list[dict], list[dict]]:
    """A fact told early and asked for later."""
    what, pool = r.choice((("name", w.NAMES), ("city", w.CITIES), ("favorite color", w.COLORS), ("favorite food", w.FOODS), ("job", w.JOBS)))
    value = invented_name(r) if what == "name" and r.random() < 0.5 else r.choice(pool)
    told = f"My {what} is {value}{r.choice(('.', '.', ''))}"
    if what == "name" and r.random() < 0.3:
        told = r.choice(("I am {v}.", "Hi, I am {v}.", "Hello, my name is {v}.", "my name is {v}")).format(v=value)
    greeting = f"Nice to meet you, {value}!" if what == "name" else f"I will remember that your {what} is {value}."
    return (
        [{"role": "user", "content": told}, {"role": "assistant", "content": greeting, "reasoning_content": "I should remember this."}],
        [{"role": "user", "content": r.choice(("What is my {x}?", "Do you remember my {x}?", "what is my {x}")).format(x=what)}, {"role": "assistant", "content": f"Your {what} is {value}.", "reasoning_content": "I was told this."}],
    )


def follow_up(r: Random, last: Task) -> Task | None:
    """A turn that only makes sense after `last`."""
    if last.kind == "sums":
        a, b = int(last.answer.rstrip(".").split(" = ")[1]), r.randrange(1, 20)
        if a >= 100 or is_held_out(f"add {min(a, b)} {max(a, b)}"):
            return None
        user = r.choice((f"And plus {b}?", f"plus {b}", f"Now add {b}."))
        return Task("sums", "", user, f"{a} + {b} = {a + b}.", f"{a} plus {b} is {a + b}.")
    if last.kind == "lists" and last.answer.count(",") >= 2:
        items = last.answer.split(", ")
        op = r.choice(("first", "last"))
        return Task("follow", "", r.choice((f"And the {op} one?", f"Which one is {op}?")), f"The {op} item is {items[0 if op == 'first' else -1]}.", "I look at the list above.")
    return None


def dialogue(r: Random) -> tuple[list[dict], bool]:
    """Messages and whether thinking mode is on."""
    thinking = r.random() < 0.2
    if r.random() < 0.3:
        offered = offer(r, 4 if r.random() < 0.2 else 3)
        specs = [s for _, s in offered]
        adds = any(tool.names[0] == "add" for tool, _ in offered)
        messages = system(r, specs)
        turns = r.choices((1, 2, 3, 4), (70, 18, 8, 4))[0]
        for i in range(turns):
            use_tool = r.random() < (0.85 if turns == 1 else 0.6)
            if use_tool:
                task = draw(r, lambda r: no_tool(r, offered) if r.random() < 0.08 else call_task(r, offered))
            else:
                task = simple(r)
            # A plain turn is not one for a tool: not a sum beside an adding tool, not a wish drawn without a look at the offer.
            while not use_tool and task.kind in (("no tool", "sums", "arithmetic") if adds else ("no tool",)):
                task = simple(r)
            messages += turn(task, thinking, f"call_{i}")
        return messages, thinking
    messages = system(r)
    turns = r.choices((1, 2, 3, 5, 8, 14, 22), (66, 13, 8, 5, 4, 2.5, 1.5))[0]
    told, asked = memory(r) if turns > 1 and r.random() < 0.6 else ([], [])
    told_at = r.randrange(turns)
    last = None
    for i in range(turns):
        if i == told_at:
            messages += told
        task = (follow_up(r, last) if last and r.random() < 0.3 else None) or simple(r)
        messages += turn(task, thinking)
        last = task if i != told_at - 1 else None
    return messages + asked, thinking


def story(r: Random) -> str:
    """Plain text for the completions endpoint: a few sentences about one person."""
    name, pet, city, job = r.choice(w.NAMES), r.choice(w.ANIMALS), r.choice(w.CITIES), r.choice(w.JOBS)
    lines = [f"{name} lives in {city} and works as a {job}.", f"On {r.choice(w.DAYS)} {name} found a {r.choice(w.COLORS)} {pet} in the {r.choice(w.ROOMS)}."]
    rest = [
        f"The {pet} wanted some {r.choice(w.FOODS)}.",
        f"{name} gave the {pet} {r.choice(w.FOODS)} and {r.choice(w.FOODS)}.",
        f"Then the {pet} slept under the {r.choice(w.THINGS)}.",
        f"It was a {r.choice(w.WEATHER)} day in {r.choice(w.MONTHS)}.",
        f"Later {name} called {r.choice(w.NAMES)} and told the story.",
        f"They bought a {r.choice(w.COLORS)} {r.choice(w.THINGS)} for {r.randint(2, 99)} dollars.",
    ]
    return " ".join(lines + r.sample(rest, r.randint(1, 5)))


def document(r: Random) -> str:
    """One rendered training document, BOS to EOS."""
    if r.random() < 0.03:
        return encoder.BOS_TOKEN + story(r) + encoder.EOS_TOKEN
    messages, thinking = dialogue(r)
    mode = "thinking" if thinking else "chat"
    effort = "max" if thinking and r.random() < 0.1 else None
    return encoder.encode_messages(messages, mode, reasoning_effort=effort)


def documents(seed: int) -> Iterator[str]:
    r = Random(seed)
    while True:
        yield document(r)


# ---------------------------------------------------------------- the score
def held_out(kind: str, count: int, seed: int = 2024) -> list[dict]:
    """`count` distinct prompts of one scored class: messages, tools, and the only right answer or call."""
    r = Random(f"{kind} {seed}")
    seen: set[str] = set()
    out = []
    while len(out) < count:
        task = draw(r, SCORED[kind], held_out=True)
        if task.user in seen or (kind == "sums" and task.key.removeprefix("add ").replace(" ", "+") in SEEN_SUMS):
            continue
        seen.add(task.user)
        out.append({"class": kind, "user": task.user, "tools": task.tools, "answer": None if task.call else task.answer, "call": task.call})
    return out


def prompt_text(case: dict) -> str:
    """What the chat encoder makes of a scored prompt (chat mode)."""
    messages = [{"role": "system", "content": "", "tools": case["tools"]}] if case["tools"] else []
    return encoder.encode_messages(messages + [{"role": "user", "content": case["user"]}])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--held-out", type=int, default=0, help="prompts a class")
    parser.add_argument("--out", type=Path, default=Path("held_out.jsonl"))
    args = parser.parse_args()
    stream = documents(args.seed)
    for _ in range(args.show):
        print(next(stream), end="\n----\n")
    if args.held_out:
        cases = [case for kind in SCORED for case in held_out(kind, args.held_out)]
        args.out.write_text("".join(json.dumps(c, ensure_ascii=False) + "\n" for c in cases))


if __name__ == "__main__":
    main()
