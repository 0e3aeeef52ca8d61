# SPDX-License-Identifier: Apache-2.0
"""Compares nibble's chat encoder with the encoder file of a model folder, on random conversations.

    chat_oracle_test.py PROGRAM [--model DIR] [--tokenizer FILE] [--count N]

PROGRAM is the built chat_cases. The expected ids are what the `tokenizers` library makes of the string that the folder's
encoding/encoding_dsv4.py renders. The folder is run as Python here: only use it on one you trust (models/tiny, the default).
Exit status 77 means skipped: the package tokenizers is missing.
"""
import argparse
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SKIPPED = 77
ROOT = Path(__file__).resolve().parents[2]
WORDS = [
    "hello", "the", "sum of 12 and 7", "深度求索", "👩‍👩‍👧", "naïve", "a\nb", "  indented", "trailing  ", "\n", "", "x = {'a': [1]}", "<tool_result>",
    "</tool_result>", '"quoted"', "back\\slash", "\t", "line one\nline two\n\n", "<b>", "&amp;", "e\u0301", "٣", "\u3000", "user: hi", "1234567",
]
VALUES: list[Any] = [
    "ls -l", "", "two\nlines", "深", '"q"', 7, -1.5, 0.1, True, False, None, [], [1, "a", None], {}, {"k": [{"n": "é"}]}, "</parameter>", "1", "null",
]
TOOLS = [
    {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}},
    {"name": "weather", "description": "Wetter in einer Stadt: °C", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
    {"name": "empty", "parameters": {}},
]


class Conversations:
    """Random conversations in OpenAI's message shape; what a role allows is all used."""

    def __init__(self, seed: int, efforts: list[str | None], developer: bool) -> None:
        self.rng = random.Random(seed)
        self.efforts = efforts
        self.developer = developer

    def text(self) -> str:
        return "".join(self.rng.choice(WORDS) + self.rng.choice(["", " ", "\n"]) for _ in range(self.rng.randint(0, 5)))

    def call(self, index: int) -> dict:
        arguments = {self.rng.choice("abcdé"): self.rng.choice(VALUES) for _ in range(self.rng.randint(0, 3))}
        spelled = json.dumps(arguments, ensure_ascii=self.rng.random() < 0.5, indent=self.rng.choice([None, 1]))
        if self.rng.random() < 0.1:
            spelled = self.rng.choice(["{}", '{"x":1,"x":"last"}', "[1]", "7"])
        return {"id": f"call_{index}", "type": "function", "function": {"name": self.rng.choice(TOOLS)["name"], "arguments": spelled}}

    def message(self) -> list[dict]:
        role = self.rng.choice(["user"] * 4 + ["assistant"] * 4 + ["system", "calls", "calls", "latest_reminder"] + ["developer"] * self.developer)
        if role == "assistant":
            out = {"role": role, "content": self.text()}
            if self.rng.random() < 0.6:
                out["reasoning_content"] = self.text()
            if self.rng.random() < 0.05:
                out["wo_eos"] = True
            return [out]
        if role == "calls":
            calls = [self.call(i) for i in range(self.rng.randint(1, 3))]
            results = [{"role": "tool", "tool_call_id": call["id"], "content": self.text()} for call in calls]
            if self.rng.random() < 0.3:
                results.append({"role": "tool", "tool_call_id": "unknown", "content": self.text()})
            self.rng.shuffle(results)
            if self.rng.random() < 0.2:
                results.insert(self.rng.randint(0, len(results)), {"role": "user", "content": self.text()})
            content = self.rng.choice([None, "", self.text()])
            return [{"role": "assistant", "content": content, "reasoning_content": self.text(), "tool_calls": calls}] + results
        if role == "developer":
            return [{"role": role, "content": "rules " + self.text()}]
        return [{"role": role, "content": self.text()}]

    def request(self) -> dict:
        messages = [m for _ in range(self.rng.randint(1, 7)) for m in self.message()]
        if self.rng.random() < 0.4:
            system: dict[str, Any] = {"role": "system", "content": self.text()}
            if self.rng.random() < 0.6:
                tools = self.rng.sample(TOOLS, self.rng.randint(1, len(TOOLS)))
                system["tools"] = [{"type": "function", "function": tool} for tool in tools]
            if self.rng.random() < 0.3:
                system["response_format"] = {"type": "object", "properties": {"é": {"type": "number", "minimum": 0.5}}}
            messages.insert(0, system)
        request = {
            "messages": messages,
            "thinking_mode": self.rng.choice(["chat", "thinking"]),
            "drop_thinking": self.rng.random() < 0.8,
        }
        effort = self.rng.choice(self.efforts)
        if effort is not None:
            request["reasoning_effort"] = effort
        return request


def load_encoder(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("model_encoder", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "tiny")
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--count", type=int, default=300 if os.environ.get("NIBBLE_TEST_SHORT") == "1" else 3000)
    options = parser.parse_args()
    if importlib.util.find_spec("tokenizers") is None:
        print("SKIPPED: the Python package tokenizers is not installed")
        return SKIPPED
    import tokenizers

    sys.dont_write_bytecode = True
    encoder = load_encoder(options.model / "encoding" / "encoding_dsv4.py")
    newer = hasattr(encoder, "REASONING_EFFORT_PROMPTS")
    tokenizer_file = options.tokenizer or options.model / "tokenizer.json"
    tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer_file))
    conversations = Conversations(20260102, [None, "low", "high", "max"] if newer else [None, "high", "max"], developer=True)
    with tempfile.TemporaryDirectory() as folder:
        cases = Path(folder) / "cases"
        with cases.open("w", encoding="utf-8") as out:
            for _ in range(options.count):
                request = conversations.request()
                text = encoder.encode_messages(
                    request["messages"],
                    thinking_mode=request["thinking_mode"],
                    drop_thinking=request["drop_thinking"],
                    reasoning_effort=request.get("reasoning_effort"),
                )
                request["ids"] = tokenizer.encode(text, add_special_tokens=False).ids
                out.write(json.dumps(request, ensure_ascii=False) + "\n")
        return subprocess.run([options.program, options.model, tokenizer_file, cases]).returncode


if __name__ == "__main__":
    sys.exit(main())
