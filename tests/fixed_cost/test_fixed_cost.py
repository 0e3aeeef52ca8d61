"""The real server and scheduler around the decoder of fixed cost: every answer is a function of its prompt, so one that is
mixed up with another, or that company, chunking, a cached prefix or drafting changed, is seen. No speed is asserted."""
from __future__ import annotations

import contextlib
import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

NIBBLE = Path(os.environ["NIBBLE_BINARY"]).resolve()
FOLDER = NIBBLE.parent / "tests" / "fixed_cost"
PATIENCE_S = 300.0


@contextlib.contextmanager
def serving(*flags: str) -> Iterator[str]:
    process = subprocess.Popen([FOLDER / "fixed_cost_server", "--base-us", "200", *flags], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        url = process.stdout.readline().strip()
        assert url.startswith("http://"), f"exit status {process.wait()}"
        yield url
        assert process.poll() is None, "the server ended"
    finally:
        process.terminate()
        assert process.wait(timeout=PATIENCE_S) == 0


def complete(url: str, prompt: list[int], tokens: int = 24, **fields: object) -> tuple[str, dict]:
    body = json.dumps({"prompt": prompt, "max_tokens": tokens, **fields}).encode()
    request = urllib.request.Request(url + "/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        answer = json.load(response)
    return answer["choices"][0]["text"], answer["usage"]


PROMPTS = [[100 + (i * 31 + j * 7) % 1000 for j in range(5 + i * 37)] for i in range(24)]


@pytest.fixture(scope="module")
def alone() -> list[str]:
    with serving("--max-num-seqs", "1") as url:
        return [complete(url, prompt)[0] for prompt in PROMPTS]


@pytest.mark.parametrize("flags", [(), ("--prefill-chunk", "7"), ("--max-draft", "3"), ("--max-draft", "4", "--acceptance", "0.3"),
                                   ("--pages", "12")])  # fmt: skip
def test_company_changes_no_answer(alone: list[str], flags: tuple[str, ...]) -> None:
    with serving("--max-num-seqs", "8", *flags) as url, ThreadPoolExecutor(24) as pool:
        for _ in range(2):  # the second time from the prefix cache
            assert [text for text, _ in pool.map(lambda prompt: complete(url, prompt), PROMPTS)] == alone


def test_temperature_and_seed_do_not_matter(alone: list[str]) -> None:
    with serving() as url:
        assert complete(url, PROMPTS[3], temperature=1.5, seed=9)[0] == alone[3]


def test_every_token_is_in_the_log(tmp_path: Path) -> None:
    log, times, steps = tmp_path / "log", tmp_path / "times", tmp_path / "steps"
    with serving("--max-num-seqs", "8", "--event-log", str(log), "--step-log", str(steps)) as url:
        subprocess.run([FOLDER / "api_latency", url, "--streams", "8", "--tokens", "50", "--times", times], check=True)
    entries = [tuple(map(int, line.split())) for line in log.read_text().splitlines()]
    assert {seed for seed, _, _ in entries} == set(range(1, 9))
    for stream in range(1, 9):
        assert max(tokens for seed, tokens, _ in entries if seed == stream) == 50
    joined = subprocess.run([FOLDER / "api_latency", "--join", log, "--times", times], check=True, capture_output=True, text=True)
    assert joined.stdout.startswith(f"{8 * 45} tokens: ")  # all but the first tenth
    assert any(line.split()[0] == "8" for line in steps.read_text().splitlines())


def test_bench_serve_sees_the_acceptance() -> None:
    with serving("--max-draft", "1", "--acceptance", "0.5") as url:
        run = subprocess.run([NIBBLE, "bench", "serve", url, "--requests", "8", "--concurrency", "4", "--max-tokens", "200",
                              "--ignore-eos", "--json"], check=True, capture_output=True, text=True)  # fmt: skip
    results = json.loads(run.stdout)["results"]
    assert results["completion_tokens"] == 8 * 200
    if results["drafted_tokens"] >= 200:  # the scheduler may find that drafting does not pay
        assert 0.3 < results["accepted_tokens"] / results["drafted_tokens"] < 0.7
