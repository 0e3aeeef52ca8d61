# SPDX-License-Identifier: Apache-2.0
"""Tool-call tasks: a tools list whose names, parameters and wording vary, a user turn, the right call, and the turn
after the tool's result."""
from dataclasses import dataclass
from random import Random
from typing import Callable

import world as w
from tasks import Task, dumps

TIMES = [f"{h}:{m:02d}" for h in range(6, 24) for m in (0, 15, 30, 45)]
MESSAGES = ["I am late", "see you soon", "dinner is ready", "call me back", "happy birthday", "the train is late", "good luck", "I am home", "thank you for the gift", "meet me at noon"]
TITLES = ["lunch", "dentist", "meeting", "football", "piano lesson", "exam", "party", "haircut", "yoga", "book club"]
ARTISTS = ["Mozart", "Bach", "Chopin", "Verdi", "Vivaldi", "Handel", "Haydn", "Brahms", "Liszt", "Schubert"]
CURRENCIES = ["dollars", "euros", "pounds", "yen", "francs", "pesos"]


@dataclass
class Param:
    names: list[str]  # one is drawn for each schema
    type: str
    draw: Callable[[Random], object]
    about: str


@dataclass
class Tool:
    names: list[str]
    about: list[str]
    params: list[Param]
    users: list[str]  # {0}, {1}, ... are the parameters
    result: Callable[[Random, list], dict]
    answer: str  # {r[...]} reads the result, {0} the parameters


def text(names: str, pool: list[str], about: str) -> Param:
    return Param(names.split(), "string", lambda r: r.choice(pool), about)


def number(names: str, low: int, high: int, about: str) -> Param:
    return Param(names.split(), "integer", lambda r: r.randint(low, high), about)


def done(r: Random, a: list) -> dict:
    return {"ok": True}


CITY = text("city city city location place", w.CITIES, "the city")
TOOLS = [
    Tool(["get_weather", "get_weather", "get_current_weather", "weather"], ["Get the weather in a city.", "Current weather for a city", "Weather report"], [CITY],
         ["What is the weather in {0}?", "What is the weather like in {0}?", "How is the weather in {0}?", "weather in {0}", "Tell me the weather in {0}.", "Is it raining in {0}?", "What's the weather in {0}?", "What's the weather like in {0} today?"],
         lambda r, a: {"weather": r.choice(w.WEATHER), "temperature": r.randint(-9, 39)}, "It is {r[weather]} in {0}, {r[temperature]} degrees."),
    Tool(["get_time", "current_time", "clock"], ["Get the local time in a city.", "Time in a city"], [CITY],
         ["What time is it in {0}?", "Tell me the time in {0}.", "time in {0}", "What is the time in {0}?"],
         lambda r, a: {"time": r.choice(TIMES)}, "It is {r[time]} in {0}."),
    Tool(["add", "add_numbers", "sum"], ["Add two numbers.", "Sum of two integers"], [number("a a x first", 0, 999, "first number"), number("b b y second", 0, 999, "second number")],
         ["What is {0} plus {1}?", "Add {0} and {1}.", "Calculate {0} + {1}.", "{0} + {1}"],
         lambda r, a: {"sum": a[0] + a[1]}, "The sum is {r[sum]}."),
    Tool(["search", "web_search", "find"], ["Search the web.", "Find pages about a subject"], [text("query query q text", w.UNKNOWN_THINGS + w.WORDS, "what to look for")],
         ["Search for {0}.", "Search the web for {0}.", "Look up {0}.", "Find something about {0}."],
         lambda r, a: {"pages": r.randint(2, 99)}, "I found {r[pages]} pages about {0}."),
    Tool(["send_message", "send_text", "message"], ["Send a message to a person.", "Text somebody"], [text("to to name person", w.NAMES, "who gets it"), text("text text message body", MESSAGES, "the words")],
         ["Send {0} a message: {1}", "Tell {0}: {1}", "Write to {0}: {1}", "Text {0}: {1}"], done, "I sent the message to {0}."),
    Tool(["set_alarm", "alarm"], ["Set an alarm.", "Wake the user at a time"], [text("time time at", TIMES, "hours and minutes")],
         ["Set an alarm for {0}.", "Wake me at {0}.", "Alarm at {0}, please.", "Wake me up at {0}."], done, "The alarm is set for {0}."),
    Tool(["set_timer", "start_timer", "timer"], ["Start a timer.", "Count down some minutes"], [number("minutes minutes duration", 1, 99, "how long")],
         ["Set a timer for {0} minutes.", "Start a timer of {0} minutes.", "Timer for {0} minutes, please."], done, "The timer runs for {0} minutes."),
    Tool(["play_music", "play"], ["Play music.", "Play an artist"], [text("artist artist composer", ARTISTS, "who wrote it")],
         ["Play some {0}.", "Play music by {0}.", "I want to hear {0}.", "Put on {0}."], done, "Now playing {0}."),
    Tool(["translate", "translate_word"], ["Translate a word.", "Say a word in another language"], [text("word word text", w.WORDS, "the word"), text("language language to", w.LANGUAGES, "into which language")],
         ["Translate {0} into {1}.", "How do you say {0} in {1}?", "What is {0} in {1}?"],
         lambda r, a: {"translation": r.choice("ala bora cedi dono elka fumo gira hola".split())}, "{0} in {1} is {r[translation]}."),
    Tool(["convert_currency", "convert_money", "exchange"], ["Convert money.", "Exchange an amount"], [number("amount amount value", 1, 999, "how much"), text("from source from_currency", CURRENCIES[:3], "from"), text("to target to_currency", CURRENCIES[3:], "to")],
         ["Convert {0} {1} to {2}.", "How much is {0} {1} in {2}?", "Change {0} {1} into {2}."],
         lambda r, a: {"amount": r.randint(1, 999)}, "{0} {1} are {r[amount]} {2}."),
    Tool(["create_event", "add_event"], ["Add an event to the calendar.", "New calendar entry"], [text("title title name", TITLES, "what"), text("day day date", w.DAYS, "which day"), text("time time at", TIMES, "when")],
         ["Add {0} on {1} at {2} to my calendar.", "Plan {0} for {1} at {2}.", "Put {0} in my calendar: {1}, {2}."], done, "I added {0} on {1} at {2}."),
    Tool(["set_light", "light", "switch_light"], ["Switch a light.", "Turn the light in a room on or off"], [text("room room where", w.ROOMS, "the room"), text("state state mode", ["on", "off"], "on or off")],
         ["Turn {1} the light in the {0}.", "Switch {1} the {0} light.", "Light {1} in the {0}, please."], done, "The light in the {0} is {1}."),
    Tool(["roll_dice", "roll"], ["Roll dice.", "Throw some dice"], [number("count count dice", 1, 9, "how many")],
         ["Roll {0} dice.", "Throw {0} dice.", "Please roll {0} dice."], lambda r, a: {"total": r.randint(a[0], 6 * a[0])}, "You rolled {r[total]}."),
    Tool(["add_to_cart", "buy", "order"], ["Put an item in the cart.", "Order something"], [text("item item product", w.FOODS + w.FRUITS + w.THINGS, "what"), number("quantity quantity count", 2, 99, "how many")],
         ["Add {1} {0} to my cart.", "Order {1} {0}.", "Buy {1} {0}, please."], done, "I put {1} {0} in your cart."),
    Tool(["set_temperature", "heat", "set_heating"], ["Set the heating.", "Room temperature in degrees"], [text("room room where", w.ROOMS, "the room"), number("degrees degrees temperature", 15, 29, "how warm")],
         ["Set the {0} to {1} degrees.", "Heat the {0} to {1} degrees.", "Make the {0} {1} degrees warm."], done, "The {0} is set to {1} degrees."),
    Tool(["get_contact", "find_phone", "lookup_contact"], ["Find a phone number.", "Look a person up"], [text("name name person", w.NAMES, "the person")],
         ["What is the phone number of {0}?", "Find the number of {0}.", "I need {0}'s phone number."],
         lambda r, a: {"phone": f"{r.randint(100, 999)}-{r.randint(1000, 9999)}"}, "The number of {0} is {r[phone]}."),
]  # fmt: skip


def shuffled(r: Random, record: dict) -> dict:
    return dict(r.sample(list(record.items()), len(record)))


def schema(r: Random, tool: Tool) -> dict:
    """A JSON schema in one of the spellings clients send; the drawn names are what the call must use."""
    names: list[str] = []
    for p in tool.params:
        names.append(r.choice([n for n in p.names if n not in names]))
    about_params = r.random() < 0.35
    properties = {}
    for name, p in zip(names, tool.params):
        properties[name] = {"type": p.type}
        if about_params:
            properties[name]["description"] = p.about
    parameters: dict = {"type": "object", "properties": properties}
    if r.random() < 0.8:
        parameters["required"] = names
    if r.random() < 0.1:
        parameters["additionalProperties"] = False
    out: dict = {"name": r.choice(tool.names)}
    if r.random() < 0.8:
        out["description"] = r.choice(tool.about)
    out["parameters"] = parameters
    return out


def offer(r: Random, most: int = 3) -> list[tuple[Tool, dict]]:
    return [(t, schema(r, t)) for t in r.sample(TOOLS, r.randint(1, most))]


def call_task(r: Random, offered: list[tuple[Tool, dict]]) -> Task:
    """A user turn for one of the offered tools."""
    tool, spec = r.choice(offered)
    values = [p.draw(r) for p in tool.params]
    arguments = dict(zip(spec["parameters"]["properties"], values))
    result = tool.result(r, values)
    adds = tool.names[0] == "add" and max(values) < 100
    as_text = "weather" in result and r.random() < 0.2
    return Task(
        kind="tools",
        key=f"call {tool.names[0]} {dumps(values)}",
        user=r.choice(tool.users).format(*values),
        answer=tool.answer.format(*values, r=result),
        think=f"I call {spec['name']}.",
        tools=[s for _, s in offered],
        call={"name": spec["name"], "arguments": arguments},
        result=f"{result['weather']}, {result['temperature']} degrees" if as_text else dumps(shuffled(r, result)),
        also=f"add {min(values)} {max(values)}" if adds else "",
    )


def tool_calls(r: Random) -> Task:
    return call_task(r, offer(r))


def no_tool(r: Random, offered: list[tuple[Tool, dict]] = []) -> Task:
    """Asked for something that none of the offered tools does."""
    if r.random() < 0.3 and not offered:
        return Task("no tool", "", r.choice(w.NO_TOOL_ASKED), w.NO_TOOL, "No tool does this.")
    have = {tool.names[0] for tool, _ in offered} | {"add"}  # a small sum needs no tool
    other = r.choice([tool for tool in TOOLS if tool.names[0] not in have])
    task = call_task(r, [(other, schema(r, other))])
    return Task("no tool", task.key, task.user, w.NO_TOOL, "No tool does this.")
