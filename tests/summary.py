#!/usr/bin/env python3
"""Adds up the results that tests/run.sh left in a folder and prints the closing line `N passed, N failed, N skipped`.

    tests/summary.py build/results [--require browser] [--broken="build asan"]

The folder holds, for each preset, PRESET/ctest.xml (ctest's JUnit file: one entry a test program) and PRESET/cases/*.xml
(GoogleTest's and pytest's own files: one entry a case). A program that ctest saw pass is counted by its cases where it
left a file, else as one. fuzz.txt has a line `ok NAME ...` or `FAILED NAME ...` for each target. Exit status 1 if anything
failed, or if every case of a program whose name contains a --require word was skipped.
"""
from __future__ import annotations

import argparse
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Tally:
    """Counts, and the names worth printing."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped


def case_tally(path: Path, label: str) -> Tally:
    """The cases of one GoogleTest or pytest file."""
    tally = Tally()
    for case in ElementTree.parse(path).iter("testcase"):
        name = f"{label} {case.get('classname', '')}.{case.get('name', '')}"
        if case.find("failure") is not None or case.find("error") is not None:
            tally.failed.append(name)
        elif case.find("skipped") is not None or case.get("status") == "notrun":
            reason = case.find("skipped")
            message = "" if reason is None else (reason.get("message") or "").strip().split("\n")[-1]
            tally.skipped.append(f"{name}: {message}" if message else name)
        else:
            tally.passed += 1
    return tally


def preset_tally(folder: Path, required: list[str]) -> Tally:
    """All programs of one preset."""
    total = Tally()
    programs = list(ElementTree.parse(folder / "ctest.xml").iter("testcase"))
    if not programs:
        total.failed.append(f"{folder.name}: no test program ran")
    for program in programs:
        name = program.get("name", "")
        label = f"{folder.name}/{name}"
        status = program.get("status", "")
        cases_file = folder / "cases" / f"{name}.xml"
        cases = Tally()
        if cases_file.exists():
            try:
                cases = case_tally(cases_file, label)
            except ElementTree.ParseError:
                pass  # the program died while writing it; ctest knows
        if status == "run":
            if cases.failed:  # cannot be, so do not hide it
                cases.failed.append(f"{label}: passed for ctest in spite of failed cases")
            total.add(cases if cases.passed or cases.failed or cases.skipped else Tally(passed=1))
            ran = cases.passed > 0 or not cases.skipped
        elif status in ("notrun", "disabled"):
            total.add(cases if cases.skipped else Tally(skipped=[label]))
            ran = False
        else:
            total.add(cases if cases.failed else Tally(cases.passed, [label], cases.skipped))
            ran = True
        if not ran and any(word in name for word in required):
            total.failed.append(f"{label}: skipped, but required here")
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--require", action="append", default=[])
    parser.add_argument("--broken", action="append", default=[])
    arguments = parser.parse_args()

    total = Tally(failed=[f"{phase}: did not finish" for phase in arguments.broken if phase])
    for file in sorted(arguments.folder.glob("*/ctest.xml")):
        tally = preset_tally(file.parent, arguments.require)
        print(f"{file.parent.name}: {tally.passed} passed, {len(tally.failed)} failed, {len(tally.skipped)} skipped")
        total.add(tally)
    fuzz = arguments.folder / "fuzz.txt"
    for line in fuzz.read_text().splitlines() if fuzz.exists() else []:
        word, _, rest = line.partition(" ")
        if word == "ok":
            total.passed += 1
        else:
            total.failed.append(f"fuzz/{rest}")
    for name in total.skipped:
        print(f"skipped  {name}")
    for name in total.failed:
        print(f"FAILED   {name}")
    if total.passed == 0 and not total.failed:
        total.failed.append("no test ran")
    print(f"{total.passed} passed, {len(total.failed)} failed, {len(total.skipped)} skipped")
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
