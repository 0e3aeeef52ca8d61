"""Every checkpoint of the corpus: exact codes, the exit code, in bounded time and memory, and nothing in it has run."""
from __future__ import annotations

import os
from pathlib import Path

import pytest

from conftest import SANITIZED, Corpus, audit

import make_corpus  # tools/audit_corpus
import payloads

LIMIT_S = 1.0
LIMIT_BYTES = 256 << 20
NAMES = list(make_corpus.all_cases())


def test_the_corpus_is_large_enough() -> None:
    assert sum(name.startswith("hostile/") for name in NAMES) >= 60
    assert sum(name.startswith("good/") for name in NAMES) >= 20


@pytest.mark.parametrize("name", NAMES)
def test_codes(corpus: Corpus, name: str, tmp_path: Path) -> None:
    case = corpus[name]
    run = audit(case["path"], "--json", cwd=tmp_path)
    assert run.exit == case["exit"], run.stdout + run.stderr
    assert run.codes() == case["codes"], run.stdout
    assert run.stderr == ""
    refusals = [finding for file in [*run.report["files"], run.report] for finding in file["findings"] if finding["severity"] == "refusal"]
    assert run.report["verdict"] == ("refused" if refusals else "ok")
    assert bool(refusals) == (name.startswith("hostile/"))
    if not SANITIZED:
        assert run.cpu_s < LIMIT_S
        assert run.peak_bytes < LIMIT_BYTES
    assert not (tmp_path / payloads.MARKER).exists()


def test_nothing_has_run(corpus: Corpus) -> None:
    # The order of the file: everything has been written and audited by now, where the whole file is run.
    for folder, _, files in os.walk(corpus.root):
        assert payloads.MARKER not in files, folder


def test_text_is_safe_for_a_terminal(corpus: Corpus) -> None:
    for name in ("hostile/name_terminal_escape", "hostile/name_newline", "hostile/name_not_utf8", "hostile/name_right_to_left"):
        run = audit(corpus[name]["path"])
        assert run.exit == 3
        assert all(character == "\n" or " " <= character <= "~" for character in run.stdout)
        assert "refusal bad_name: " in run.stdout
