"""Runs the built executable for the tests of this folder; NIBBLE_BINARY names it."""
from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tools" / "audit_corpus"))
PATIENCE_S = 120.0
# Sanitizers take time and memory of their own.
SANITIZED = "NIBBLE_TEST_SHORT" in os.environ


def binary() -> str:
    path = os.environ.get("NIBBLE_BINARY", str(SOURCE / "build" / "nibble"))
    if not os.access(path, os.X_OK):
        pytest.fail(f"NIBBLE_BINARY: no executable {path}")
    return str(Path(path).resolve())


@dataclasses.dataclass
class Run:
    exit: int
    stdout: str
    stderr: str
    cpu_s: float  # not by the clock: machines are shared
    peak_bytes: int

    @property
    def report(self) -> dict:
        return json.loads(self.stdout)

    def codes(self) -> dict[str, list[str]]:
        """Like the manifest's: file name, or "" for the checkpoint as a whole, to the set of its codes."""
        report = self.report
        found = {file["name"]: file["findings"] for file in report["files"]} | {"": report["findings"]}
        return {name: sorted({finding["code"] for finding in findings}) for name, findings in found.items() if findings}


def audit(*arguments: str, cwd: Path | None = None) -> Run:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        start = time.monotonic()
        process = subprocess.Popen([binary(), "audit", *arguments], stdout=out, stderr=errors, stdin=subprocess.DEVNULL, cwd=cwd)
        try:
            while True:
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                if pid:
                    break
                if time.monotonic() - start > PATIENCE_S:
                    raise TimeoutError(f"nibble audit {arguments}")
                time.sleep(0.001)
        except BaseException:
            process.kill()
            process.wait()
            raise
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), errors.seek(0)
        return Run(process.returncode, out.read().decode("ascii"), errors.read().decode(),
                   usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


class Corpus:
    """The corpus's manifest by kind and name. A checkpoint is written when it is first asked for."""

    def __init__(self, root: Path):
        import make_corpus  # tools/audit_corpus

        self.root = root
        self._cases = make_corpus.all_cases()
        self._write = make_corpus.write
        self._written: dict[str, dict] = {}

    def __getitem__(self, key: str) -> dict:
        if key not in self._written:
            self._written[key] = self._write(self.root, key, self._cases[key])
        return self._written[key]


@pytest.fixture(scope="session")
def corpus() -> Iterator[Corpus]:
    # Names are long there and sockets' paths short: a folder of our own, gone afterwards.
    with tempfile.TemporaryDirectory(prefix="nibble-audit-") as folder:
        yield Corpus(Path(folder) / "corpus")
