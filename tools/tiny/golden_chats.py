# SPDX-License-Identifier: Apache-2.0
"""Example chats and the text tiny's encoder makes of them: models/tiny/encoding/tests/NAME.json and NAME.txt.

    python golden_chats.py            compare, exit 1 on a difference
    python golden_chats.py --write    write the files again (look at the difference before committing it)
"""
import argparse
import json
import sys
from pathlib import Path

from corpus import ENCODER_PATH, encoder

FOLDER = ENCODER_PATH.parent / "tests"
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Get the weather in a city.", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
TIMER = {"type": "function", "function": {"name": "set_timer", "parameters": {"type": "object", "properties": {"minutes": {"type": "integer"}, "label": {"type": "string"}}}}}
STOP = {"name": "stop_music", "description": "Stop the music – at once", "parameters": {"type": "object", "properties": {}}}


def call(name: str, arguments: object, call_id: str) -> dict:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


CHATS: dict[str, dict] = {
    "multi_turn": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hello! How can I help you?", "reasoning_content": "never shown in chat mode"},
            {"role": "user", "content": "What is 12 plus 7?"},
            {"role": "user", "content": [{"type": "text", "text": "And in words?"}, {"type": "image_url"}]},
        ],
        "thinking_mode": "chat",
    },
    "tools": {
        "messages": [
            {"role": "system", "content": "", "tools": [WEATHER, TIMER]},
            {"role": "user", "content": "What is the weather in Paris?"},
        ],
        "thinking_mode": "chat",
    },
    "tool_results": {
        "messages": [
            {"role": "system", "content": "You are tiny, a small assistant.", "tools": [WEATHER, TIMER, STOP]},
            {"role": "user", "content": "Weather in Oslo and Zürich, a timer, and silence."},
            {
                "role": "assistant",
                "content": "At once.",
                "tool_calls": [
                    call("get_weather", {"city": "Oslo"}, "a"),
                    call("get_weather", {"city": "Zürich"}, "b"),
                    call("set_timer", {"minutes": 5, "label": "tea & \"cake\"", "tags": ["x", 1.5, None, True]}, "c"),
                    call("stop_music", {}, "d"),
                    call("get_weather", "[1, 2]", "e"),
                ],
            },
            {"role": "tool", "tool_call_id": "c", "content": '{"ok": true}'},
            {"role": "tool", "tool_call_id": "b", "content": "sunny, 21 degrees"},
            {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "snowy"}, {"type": "text", "text": "-4 degrees"}]},
            {"role": "user", "content": "Thanks!"},
        ],
        "thinking_mode": "chat",
    },
    "thinking_dropped": {
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello!", "reasoning_content": "This is small talk."},
            {"role": "user", "content": "What is 58 plus 67?"},
        ],
        "thinking_mode": "thinking",
        "reasoning_effort": "max",
    },
    "thinking_kept_with_tools": {
        "messages": [
            {"role": "system", "content": "", "tools": [WEATHER]},
            {"role": "user", "content": "What is the weather in Rome?"},
            {"role": "assistant", "content": "", "reasoning_content": "I call get_weather.", "tool_calls": [call("get_weather", {"city": "Rome"}, "r")]},
            {"role": "tool", "tool_call_id": "r", "content": '{"weather": "clear", "temperature": 24}'},
            {"role": "assistant", "content": "It is clear in Rome, 24 degrees.", "reasoning_content": "I read the result."},
            {"role": "user", "content": "Thank you"},
        ],
        "thinking_mode": "thinking",
        "reasoning_effort": "high",
    },
    "response_format": {
        "messages": [
            {"role": "system", "content": "Write JSON.", "response_format": {"type": "object", "properties": {"name": {"type": "string"}}}},
            {"role": "developer", "content": "Names only."},
            {"role": "latest_reminder", "content": "It is Monday."},
            {"role": "assistant", "content": '{"name": "Anna"}'},
            {"role": "user", "content": "Another one"},
        ],
        "thinking_mode": "chat",
    },
}


def render(chat: dict) -> str:
    return encoder.encode_messages(chat["messages"], chat["thinking_mode"], reasoning_effort=chat.get("reasoning_effort"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    bad = []
    for name, chat in CHATS.items():
        source, text = FOLDER / f"{name}.json", FOLDER / f"{name}.txt"
        if args.write:
            FOLDER.mkdir(parents=True, exist_ok=True)
            source.write_text(json.dumps(chat, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
            text.write_text(render(chat), encoding="utf-8")
        elif json.loads(source.read_text("utf-8")) != chat or text.read_text("utf-8") != render(chat):
            bad.append(name)
    if bad:
        sys.exit("differs: " + ", ".join(bad))
    print(f"{len(CHATS)} chats {'written' if args.write else 'equal'}")


if __name__ == "__main__":
    main()
