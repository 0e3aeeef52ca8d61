"""`nibble bench serve` against the bundled model and against a server whose answers are known: counts and token
arithmetic, never speed."""
from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator

import pytest

from conftest import PATIENCE_S, Server, binary
from fake_openai import FakeServer, MakeFake, Plan


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([binary(), "bench", *arguments], capture_output=True, text=True, timeout=PATIENCE_S)


def measured(*arguments: str, status: int = 0) -> dict:
    run = bench("serve", *arguments, "--json")
    assert run.returncode == status, run.stderr
    return json.loads(run.stdout)


@pytest.fixture
def fake() -> Iterator[MakeFake]:
    with contextlib.ExitStack() as stack:

        def make(**plan: object) -> FakeServer:
            server = FakeServer(Plan(**plan))  # type: ignore[arg-type]
            stack.callback(server.close)
            return server

        yield make


# ---------------------------------------------------------------- the bundled model
@pytest.mark.parametrize("trace", ["random", "shared-prefix", "agent"])
def test_tiny_counts_what_the_server_counts(server: Server, trace: str) -> None:
    before = server.metric("vllm:generation_tokens_total")
    report = measured(server.url, "--trace", trace, "--requests", "6", "--concurrency", "3", "--max-tokens", "8",
                      "--ignore-eos", "--prompt-tokens", "8:32", "--prefix-tokens", "64", "--think", "0")
    results = report["results"]
    assert (results["requests"], results["succeeded"], results["failed"]) == (6, 6, 0)
    assert results["completion_tokens"] == 6 * 8
    assert results["requests_with_estimated_token_times"] == 0  # our server says how many tokens an event brings
    # The probe's one token is the only other one.
    assert server.metric("vllm:generation_tokens_total") == before + 6 * 8 + 1
    assert sum(request["prompt_tokens"] for request in report["requests"]) == results["prompt_tokens"]
    assert 0 <= results["accepted_tokens"] <= results["drafted_tokens"]


def test_tiny_gets_the_same_requests_again(server: Server) -> None:
    def prompts(seed: str) -> list[tuple[int, int]]:
        report = measured(server.url, "--requests", "5", "--rate", "50", "--max-tokens", "1", "--seed", seed,
                          "--prompt-tokens", "8:64")
        return sorted((request["conversation"], request["prompt_tokens"]) for request in report["requests"])

    first = prompts("7")
    assert first == prompts("7")
    assert first != prompts("8")


def test_two_servers_get_the_same_trace(server: Server, fake: MakeFake) -> None:
    other = fake()
    report = measured(server.url, "--baseline", other.url, "--baseline-model", "fake", "--requests", "9",
                      "--concurrency", "2", "--max-tokens", "4", "--prompt-tokens", "8", "--warmup", "2")
    assert report["results"]["succeeded"] == report["baseline"]["succeeded"] == 9
    assert report["baseline"]["model"] == "fake"
    assert report["baseline"]["completion_tokens"] == 9 * 6
    assert len(other.plan.bodies) == 1 + 2 + 9  # probe, warm-up, trace
    text = bench("serve", server.url, "--baseline", other.url, "--baseline-model", "fake", "--requests", "2", "--max-tokens", "2")
    assert text.returncode == 0 and "first server / second" in text.stdout


# ---------------------------------------------------------------- token arithmetic
def test_tokens_are_counted_not_events(fake: MakeFake) -> None:
    report = measured(fake(events=(1, 2, 3)).url, "--requests", "4")
    results = report["results"]
    assert results["completion_tokens"] == 4 * 6
    assert (results["prompt_tokens"], results["cached_tokens"]) == (40, 16)
    assert [request["events"] for request in report["requests"]] == [3] * 4
    assert results["requests_with_estimated_token_times"] == 0


def test_a_gap_is_shared_by_its_tokens(fake: MakeFake) -> None:
    # Events 50 ms apart with 5 tokens each: about 10 ms a token, and never less than sleeping allows.
    results = measured(fake(events=(5, 5, 5), gap_s=0.05).url, "--requests", "1")["results"]
    events, tokens = results["between_events_ms"], results["inter_token_ms"]
    assert events["p50"] >= 40
    # 4 tokens of the first event waited for nothing, 10 waited a fifth of a gap.
    assert tokens["max"] == pytest.approx(events["max"] / 5)
    assert tokens["mean"] == pytest.approx(2 * events["mean"] / 14)


def test_a_server_that_counts_only_at_the_end(fake: MakeFake) -> None:
    server = fake(events=(1, 2, 3), knows_continuous_usage=False)
    results = measured(server.url, "--requests", "2")["results"]
    assert results["completion_tokens"] == 12
    assert results["requests_with_estimated_token_times"] == 2
    assert server.plan.bodies[1]["stream_options"] == {"include_usage": True}
    assert "spread" in bench("serve", server.url, "--requests", "1").stdout


def test_a_server_that_counts_nothing(fake: MakeFake) -> None:
    server = fake(events=(1, 1, 1, 1), knows_stream_options=False)
    results = measured(server.url, "--requests", "2")["results"]
    assert results["completion_tokens"] == 8  # one an event, for want of better
    assert results["cached_tokens"] is None
    assert "stream_options" not in server.plan.bodies[-1]


# ---------------------------------------------------------------- failures
def test_429_is_an_error_unless_asked_to_come_back(fake: MakeFake) -> None:
    report = measured(fake(refusals=3).url, "--requests", "5", status=1)
    assert report["results"]["errors"] == {"HTTP 429 busy": 3}
    assert (report["results"]["rejected"], report["results"]["succeeded"]) == (3, 2)

    report = measured(fake(refusals=3).url, "--requests", "5", "--retry", "--concurrency", "5")
    assert report["results"]["errors"] == {}
    assert (report["results"]["rejected"], report["results"]["succeeded"]) == (3, 5)
    for request in report["requests"]:
        assert request["time_to_first_token_ms"] >= 900 * request["rejected"]  # the wait counts


def test_failures_can_be_allowed(fake: MakeFake) -> None:
    report = measured(fake(error_after=1).url, "--requests", "2", "--allow-failures")
    assert report["results"]["errors"] == {"error in the stream: broken": 2}


def test_a_connection_cut_in_the_middle(fake: MakeFake) -> None:
    run = bench("serve", fake(die_after=1).url, "--requests", "3")
    assert run.returncode == 1
    assert "3 x connection lost: the server closed the connection" in run.stdout


def test_a_timeout(fake: MakeFake) -> None:
    report = measured(fake(hang=True).url, "--requests", "2", "--timeout", "0.3", status=1)
    assert report["results"]["errors"] == {"timeout": 2}


def test_a_server_that_dies(start: Callable[..., Server]) -> None:
    server = start().wait_ready()
    killer = threading.Timer(1.0, server.process.kill)
    killer.start()
    report = measured(server.url, "--requests", "100000", "--concurrency", "2", "--max-tokens", "4000", "--ignore-eos", status=1)
    killer.join()
    results = report["results"]
    assert set(results["errors"]) <= {"connection lost", "connection refused"} and results["failed"] >= 2
    assert results["requests"] + results["unsent"] == 100000 and results["unsent"] > 0


def test_nobody_listens() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        run = bench("serve", f"http://127.0.0.1:{probe.getsockname()[1]}")
    assert run.returncode == 1
    assert "connection refused: no server listens there" in run.stderr


def test_a_model_that_is_not_served(fake: MakeFake) -> None:
    run = bench("serve", fake().url, "--model", "other")
    assert run.returncode == 1
    assert "there is no model 'other'; served: fake" in run.stderr


def test_a_key_that_is_wanted(start: Callable[..., Server]) -> None:
    server = start("--api-key", "secret").wait_ready()
    run = bench("serve", server.url)
    assert run.returncode == 1 and "HTTP 401" in run.stderr
    assert measured(server.url, "--api-key", "secret", "--requests", "1", "--max-tokens", "1")["results"]["succeeded"] == 1


@pytest.mark.parametrize("arguments", [
    ["ops"], [], ["serve", "https://127.0.0.1:1"], ["serve", "--rate", "1", "--concurrency", "2"],
    ["serve", "--prompt-tokens", "9:3"], ["serve", "--text", "/nonexistent"], ["serve", "--trace", "other"],
])  # fmt: skip
def test_usage_errors(arguments: list[str]) -> None:
    run = bench(*arguments)
    assert run.returncode == 2
    assert run.stderr
