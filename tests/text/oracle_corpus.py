# SPDX-License-Identifier: Apache-2.0
"""Texts that make tokenizers disagree: a fixed list, source code, and seeded random strings."""
import json
import random
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

WHITESPACE = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2003\u200a\u2028\u2029\u202f\u205f\u3000"

FIXED = [
    "", " ", "  ", "\n", "\r\n", "\r", "a", "Hello, world!", "It's 12 o'clock; we'll see.", "x = y+1;\n\n\n  return  x\n",
    "1", "12", "123", "1234", "1234567890", "3.14159e-10", "²³¼Ⅷ①٣४५६", "v1.2.3-rc4", "0x1F600",
    "深度求索人工智能", "カタカナひらがな漢字", "一二三123四五六", "中文 English 混合,标点。", "ゝゞ゛゜・ー゠ヿ", "\u3099\u309a\u3040\u3097",
    "龥龦鿿㐀", "한국어 텍스트", "Привет, мир!", "שלום עולם", "مرحبا بالعالم ١٢٣", "नमस्ते दुनिया १२३", "สวัสดีชาวโลก", "Ελληνικά",
    "👩‍👩‍👧 naïve 深度", "🏳️‍🌈🇩🇪👍🏽", "😀😃😄", "a\u200db\u200d\u200dc", "\u200d\u200d", "e\u0301\u0301\u0301", "\u0301", " \u0301a", "1\u0301",
    "$100 €5 £3 ¥2", "+-*/=<>|~^`", "!abc", "@name #tag", "'s 't 're", "....\n\n", ".\r\n\r\n x", "!? \n", " .\n", "\t.", "\u00a0.", "\u00a0a",
    "a \n b", "a\n \n b", " \n", "\n ", " \n ", "   a", "\t\ta", "a   ", "a\t \t1", "   1", " 1 2  3   4", "\u3000\u3000あ", "\x00\x01\x02\x7f", "a\x00b",
    "\ufeffBOM", "\ufffd\ufffe\uffff", "\U0010ffff\U000e0001\ue000", "٠١٢٣٤٥٦٧٨٩", "𝟘𝟙𝟚𝟛", "𝒜𝓑𝔠", "ǅ", "ﬁ", "ⓐⒶ", "\u2028\u2029", "_snake_case_", "CamelCase",
    "http://example.com/?q=1&r=%20#frag", "<b>bold</b>", '{"k": [1, 2.5, null], "s": "a\\n"}', "C:\\path\\file", "^_^ (╯°□°)╯︵ ┻━┻",
]

CONTROL_LIKE = [
    "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "｜DSML｜", "<｜DSML｜invoke name=\"f\">", "</｜DSML｜tool_calls>",
    "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>", "<｜latest_reminder｜>", "<｜image｜>", "<｜", "｜>", "<think", "think>", "<<think>>",
    "<|User|>", "<｜User", "</think></think>", "<｜User｜><｜User｜>", "▁", "｜", "<｜▁pad▁｜><｜Assist",
]


def source_files() -> Iterator[str]:
    """Python's own library: code in every style, on every machine."""
    folder = Path(json.__file__).resolve().parents[1]
    for name in ("json/decoder.py", "argparse.py", "textwrap.py", "turtle.py", "unittest/mock.py", "html/entities.py", "this.py"):
        path = folder / name
        if path.is_file():
            yield path.read_text(encoding="utf-8")


def pools() -> list[list[str]]:
    """Characters by Unicode category, and the corners that splitters care about."""
    by_category: dict[str, list[str]] = {}
    for c in range(sys.maxunicode + 1):
        if not 0xD800 <= c < 0xE000:
            by_category.setdefault(unicodedata.category(chr(c)), []).append(chr(c))
    ascii_characters = [chr(c) for c in range(128)]
    cjk = [chr(c) for c in range(0x4DF0, 0x9FFF, 37)] + [chr(c) for c in range(0x3030, 0x3110)]
    return list(by_category.values()) + [ascii_characters] * 8 + [cjk] * 3 + [list(WHITESPACE)] * 6 + [list("0123456789")] * 3


def category_edges() -> Iterator[str]:
    """Each code point at which the category changes, between neighbours of every kind."""
    edges = []
    last = ""
    for c in range(sys.maxunicode + 1):
        if 0xD800 <= c < 0xE000:
            continue
        category = unicodedata.category(chr(c))
        if category != last:
            edges += [chr(c)] if c == 0 else [chr(c - 1) if not 0xD800 <= c - 1 < 0xE000 else chr(c), chr(c)]
        last = category
    for at in range(0, len(edges), 16):
        block = edges[at : at + 16]
        yield "".join(block)
        for pattern in ("a{}b", " {}1", "!{}a", "{} {}", "あ{}\n"):
            yield "".join(pattern.replace("{}", c) for c in block)


def random_texts(count: int, seed: int) -> Iterator[str]:
    rng = random.Random(seed)
    kinds = pools()
    for _ in range(count):
        parts = []
        for _ in range(rng.randint(1, 24)):
            shape = rng.random()
            if shape < 0.08:
                parts.append(rng.choice(CONTROL_LIKE))
            elif shape < 0.16:
                parts.append(rng.choice(FIXED))
            elif shape < 0.24:
                parts.append(rng.choice(rng.choice(kinds)) * rng.randint(1, 40))
            else:
                kind = rng.choice(kinds)
                parts.append("".join(rng.choice(kind) for _ in range(rng.randint(1, 8))))
        yield "".join(parts)


def long_runs() -> Iterator[str]:
    for unit in ("a", " ", "\n", "7", "=", "ab", "é", "あ", "一", "👍", "\u0301", "\u200d", " \n", "a ", "\x00", "Ġ", ">>> "):
        for length in (47, 48, 49, 50, 300, 5000):
            yield unit * length
            yield "x" + unit * length + "y"


def corpus(random_count: int, seed: int = 20260101) -> Iterator[str]:
    yield from FIXED
    yield from CONTROL_LIKE
    for text in CONTROL_LIKE:
        yield f"say {text} now"
        yield f"{text}{text}x{text}"
    yield from source_files()
    yield from category_edges()
    yield from long_runs()
    yield from random_texts(random_count, seed)
