# SPDX-License-Identifier: Apache-2.0
"""Writes src/text/unicode_tables.cpp: the code point classes the tokenizer's patterns use.

The classes are read off the `tokenizers` library itself, by matching each pattern against a text that holds every
Unicode scalar value once, in order. So the tables are those of the oracle's regular expression engine, not those of
some Unicode version.

    python tools/unicode/make_tables.py            # rewrite the file
    python tools/unicode/make_tables.py --check    # exit 1 when the committed file differs
    python tools/unicode/make_tables.py --dump F   # class bits of all 1,114,112 code points, one byte each
"""
import argparse
import sys
from pathlib import Path

import tokenizers
from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

TARGET = Path(__file__).resolve().parents[2] / "src" / "text" / "unicode_tables.cpp"

# (name in C++, pattern, bit in unicode_tables.h)
CLASSES = [
    ("Letters", r"\p{L}", 1),
    ("Marks", r"\p{M}", 2),
    ("Numbers", r"\p{N}", 4),
    ("Punctuation", r"\p{P}", 8),
    ("Symbols", r"\p{S}", 16),
    ("Whitespace", r"\s", 32),
]
SURROGATES = range(0xD800, 0xE000)
CODE_POINTS = 0x110000


def ranges_of(pattern: str) -> list[tuple[int, int]]:
    """Inclusive code point ranges that the library's engine matches with `pattern`."""
    scalars = [c for c in range(CODE_POINTS) if c not in SURROGATES]
    text = "".join(map(chr, scalars))
    # "removed" leaves the pieces between the matches, with their offsets in characters.
    between = Split(Regex(f"(?:{pattern})+"), "removed").pre_tokenize_str(text)
    matched: list[tuple[int, int]] = []
    at = 0
    for _, (start, end) in between + [("", (len(text), len(text)))]:
        if start > at:
            matched.append((at, start))
        at = end
    ranges: list[tuple[int, int]] = []
    for start, end in matched:
        first, last = scalars[start], scalars[end - 1]
        if first < SURROGATES.start <= last:  # a run that only looks whole because surrogates are absent
            ranges += [(first, SURROGATES.start - 1), (SURROGATES.stop, last)]
        else:
            ranges.append((first, last))
    return ranges


def source(classes: dict[str, list[tuple[int, int]]]) -> str:
    out = [
        f"// From tokenizers {tokenizers.__version__}, by tools/unicode/make_tables.py; do not edit.",
        '#include "text/unicode_tables.h"',
        "",
        "namespace nibble::text {",
        "",
        "namespace {",
        "",
        "// clang-format off",
    ]
    for name, ranges in classes.items():
        out.append(f"constexpr CodePointRange k{name}Ranges[] = {{")
        line = "   "
        for first, last in ranges:
            item = f" {{0x{first:X}, 0x{last:X}}},"
            if len(line) + len(item) > 100:
                out.append(line)
                line = "   "
            line += item
        out += [line, "};"]
    out += ["// clang-format on", "", "}  // namespace", ""]
    for name, _, _ in CLASSES:
        out += [f"std::span<const CodePointRange> {name.lower()}() {{", f"  return k{name}Ranges;", "}", ""]
    out += ["}  // namespace nibble::text", ""]
    return "\n".join(out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--dump", type=Path)
    options = parser.parse_args()
    classes = {name: ranges_of(pattern) for name, pattern, _ in CLASSES}
    if options.dump:
        bits = bytearray(CODE_POINTS)
        for name, _, bit in CLASSES:
            for first, last in classes[name]:
                for c in range(first, last + 1):
                    bits[c] |= bit
        options.dump.write_bytes(bits)
        return 0
    text = source(classes)
    if options.check:
        same = TARGET.read_text(encoding="utf-8").split("\n", 1)[1] == text.split("\n", 1)[1]
        print(f"{TARGET}: {'equal' if same else 'differs from'} tokenizers {tokenizers.__version__}")
        return 0 if same else 1
    TARGET.write_text(text, encoding="utf-8")
    print(f"{TARGET}: {sum(map(len, classes.values()))} ranges")
    return 0


if __name__ == "__main__":
    sys.exit(main())
