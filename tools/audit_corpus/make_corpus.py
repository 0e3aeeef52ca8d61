#!/usr/bin/env python3
"""Writes miniature checkpoints, hostile and good, and what `nibble audit` must say about each.

    tools/audit_corpus/make_corpus.py FOLDER

FOLDER must not exist. manifest.json in it is a list of
    {"name", "kind": "hostile" | "good", "path": what to audit, "exit": 3 | 0, "codes": {file name or "": [codes]}}
where files without codes are left out, "" stands for the checkpoint as a whole, and names are written as the report writes
them (bytes outside printable ASCII as \\xNN). Standard library only. Some of the files would run code if a careless program
loaded them: they would make a file called like payloads.MARKER, and nothing else.
"""
from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import good
import hostile
from mini import Case


def printable(name: str) -> str:
    return "".join(chr(byte) if 0x20 <= byte <= 0x7E else f"\\x{byte:02x}" for byte in os.fsencode(name))


def all_cases() -> dict[str, Case]:
    """By kind and name: "hostile/pickle_alone"."""
    cases: dict[str, Case] = {}
    for kind, made in (("hostile", hostile.cases()), ("good", good.cases())):
        for case in made:
            key = f"{kind}/{case.name}"
            assert key not in cases, key
            cases[key] = case
    return cases


def write(root: Path, key: str, case: Case) -> dict[str, object]:
    """Writes one checkpoint below `root`; returns its entry of the manifest."""
    kind = key.split("/")[0]
    # Snapshots have parents of their own; a folder around each keeps what lies beside a case apart.
    folder = case.write(root / kind / case.name)
    codes = {printable(name): found for name, found in case.codes.items() if found}
    return {"name": case.name, "kind": kind, "path": str(folder), "exit": 3 if kind == "hostile" else 0, "codes": codes}


def make(root: Path) -> list[dict[str, object]]:
    root.mkdir(parents=True)
    manifest = [write(root, key, case) for key, case in all_cases().items()]
    (root / "manifest.json").write_text(json.dumps(manifest, indent=1))
    return manifest


if __name__ == "__main__":
    if len(sys.argv) != 2 or Path(sys.argv[1]).exists():
        sys.exit(__doc__)
    made = make(Path(sys.argv[1]).resolve())
    for kind in ("hostile", "good"):
        print(f"{sum(case['kind'] == kind for case in made)} {kind}")
