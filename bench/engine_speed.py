#!/usr/bin/env python3
"""What stands around a model costs: scheduler, API, batching and drafting, each beside its target.

    bench/engine_speed.py --build build/cpu [--only scheduler,api,batch,budget,draft,prefix] [--repeat 3]

The decoder of tests/fixed_cost takes a fixed time a step and computes nothing, so that what remains is ours; `tiny` is the
bundled model. Medians of the repeats. Server and client each keep to one core where there are two.
"""
from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from serve_speed import free_port, wait_ready

CORES = sorted(os.sched_getaffinity(0))


def pinned(core: int, *command: object) -> list[str]:
    """The command, on one core of ours."""
    return ["taskset", "-c", str(CORES[core % len(CORES)]), *map(str, command)]


@contextlib.contextmanager
def running(*command: object) -> Iterator[tuple[str, subprocess.Popen]]:
    """A server that takes --port; ends with SIGTERM, so that it writes its logs."""
    port = free_port()
    process = subprocess.Popen([*map(str, command), "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_ready("127.0.0.1", port, process, 120)
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.terminate()
        process.wait(timeout=60)


def line(what: str, value: str, target: str) -> None:
    print(f"{what:<64} {value:>24}   {target}", flush=True)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


class Bench:
    def __init__(self, build: Path, repeat: int):
        self.nibble = build / "nibble"
        self.fixed = build / "tests" / "fixed_cost" / "fixed_cost_server"
        self.latency = build / "tests" / "fixed_cost" / "api_latency"
        self.repeat = repeat

    def median(self, measure: Callable[[], float]) -> float:
        return statistics.median(measure() for _ in range(self.repeat))

    def load(self, url: str, *flags: object) -> dict:
        """A run of `nibble bench serve`."""
        run = subprocess.run([str(self.nibble), "bench", "serve", url, "--json", "--ignore-eos", *map(str, flags)],
                             capture_output=True, text=True, check=False)
        if run.returncode:
            sys.exit(f"bench serve {url}: {run.stderr}{run.stdout[:500]}")
        return json.loads(run.stdout)

    # ------------------------------------------------------------ one after another
    def scheduler(self) -> None:
        """CPU time of the scheduler's thread between two steps of 256 rows, the model's own calls left out."""
        def one() -> float:
            with tempfile.TemporaryDirectory() as folder:
                steps = Path(folder) / "steps"
                command = pinned(0, self.fixed, "--base-us", 2000, "--max-num-seqs", 256, "--prefill-chunk", 4096, "--step-log", steps)
                with running(*command) as (url, _):
                    subprocess.run(pinned(1, self.latency, url, "--streams", 256, "--tokens", 500, "--times", Path(folder) / "t"), check=True)
                pairs = [entry.split() for entry in steps.read_text().splitlines()]
                return statistics.mean(float(us) for rows, us in pairs if rows == "256")

        line("scheduler thread's own work a step, 256 streams, 2-ms steps", f"{self.median(one):.0f} us", "at most 100 us")

    def api(self) -> None:
        """From a token leaving the engine to its event on the client's socket; the server has one core."""
        def one() -> tuple[float, float]:
            with tempfile.TemporaryDirectory() as folder:
                log, times = Path(folder) / "log", Path(folder) / "times"
                command = pinned(0, self.fixed, "--base-us", 10000, "--max-num-seqs", 256, "--prefill-chunk", 4096, "--event-log", log)
                with running(*command) as (url, process):
                    subprocess.run(pinned(1, self.latency, url, "--streams", 256, "--tokens", 300, "--times", times), check=True)
                    busy = cpu_seconds(process.pid) / 3.0
                joined = subprocess.run([str(self.latency), "--join", str(log), "--times", str(times)],
                                        capture_output=True, text=True, check=True)
                return float(joined.stdout.split("p99 ")[1].split()[0]), busy

        runs = [one() for _ in range(self.repeat)]
        line("API: engine to socket, p99, 256 streams x 100 steps/s, one core",
             f"{statistics.median(ms for ms, _ in runs):.2f} ms ({statistics.median(busy for _, busy in runs):.0%} of it)", "at most 5 ms")

    def batch(self) -> None:
        with running(self.fixed, "--base-us", 5000, "--per-row-us", 5, "--max-num-seqs", 16, "--prefill-chunk", 1024) as (url, _):
            self.streams_together("fixed cost", url, "at least 14 x")
        with running(self.nibble, "serve", "tiny", "--max-num-seqs", 16) as (url, _):
            self.streams_together("tiny", url, "at least 600 tokens/s at 16")

    def streams_together(self, name: str, url: str, target: str) -> None:
        common = ("--prompt-tokens", 8, "--max-tokens", 256, "--warmup", 4)

        def rate(streams: int) -> float:
            return self.load(url, "--concurrency", streams, "--requests", streams * 2, *common)["results"]["output_tokens_per_s"]

        pairs = [(rate(16), rate(1)) for _ in range(self.repeat)]
        ratio = statistics.median(many / one for many, one in pairs)
        line(f"{name}: 16 streams against one", f"{ratio:.1f} x, {statistics.median(many for many, _ in pairs):.0f} tokens/s", target)

    def budget(self) -> None:
        """A running stream's worst wait while six prompts of 4,000 tokens arrive, and what the prompts lose by its company."""
        budget_ms, base_us, row_us, length = 50, 5000, 50, 4000
        rows = (budget_ms * 1000 - base_us) // row_us
        server = (self.fixed, "--base-us", base_us, "--per-row-us", row_us, "--prefill-chunk", rows)
        prompts = [[1000 + (i * 7919 + j * 31) % 1500 for i in range(length)] for j in range(6)]

        def prompts_seconds(url: str) -> float:
            with ThreadPoolExecutor(len(prompts)) as pool:
                start = time.monotonic()
                list(pool.map(lambda ids: complete(url, ids), prompts))
                return time.monotonic() - start

        def one() -> tuple[float, float]:
            with running(*server) as (url, _):
                alone_s = prompts_seconds(url)
            with running(*server, "--step-budget-ms", budget_ms) as (url, _), ThreadPoolExecutor(1) as reader:
                arrivals: list[float] = []
                stream = reader.submit(read_stream, url, 4000 * len(prompts) // rows + 100, arrivals)
                while len(arrivals) < 50:
                    time.sleep(0.01)
                together_s = prompts_seconds(url)
                stream.result()
            gaps = [(b - a) * 1e3 for a, b in zip(arrivals, arrivals[1:])]
            return max(gaps) / budget_ms, alone_s / together_s

        runs = [one() for _ in range(self.repeat)]
        line("fixed cost: worst gap of a stream, six 4,000-token prompts arrive",
             f"{statistics.median(gap for gap, _ in runs):.2f} x the budget", "at most 1.5 x the budget of 50 ms")
        line("fixed cost: rate of those prompts against their rate alone", f"{statistics.median(rate for _, rate in runs):.2f} x", "at least 0.8 x")

    def draft(self) -> None:
        fixed = (self.fixed, "--base-us", 5000, "--per-row-us", 5, "--max-num-seqs", 16, "--acceptance", 0.8)
        with running(*fixed, "--max-draft", 4, "--draft-cost-us", 200) as (drafting, _), running(*fixed, "--max-draft", 0) as (plain, _):
            self.drafting_against_none("fixed cost, acceptance 0.8", drafting, plain, (1,), "at least 1.6 x")
        tiny = (self.nibble, "serve", "tiny", "--max-num-seqs", 16, "--draft")
        with running(*tiny, "on") as (drafting, _), running(*tiny, "off") as (plain, _):
            self.drafting_against_none("tiny", drafting, plain, (1, 4, 16), "at least 0.95 x")

    def drafting_against_none(self, name: str, drafting: str, plain: str, streams: tuple[int, ...], target: str) -> None:
        for count in streams:
            ratios, rates, accepted = [], [], []
            for _ in range(self.repeat):
                report = self.load(drafting, "--baseline", plain, "--concurrency", count, "--requests", count * 8,
                                   "--prompt-tokens", 8, "--max-tokens", 128, "--warmup", 2)
                with_drafts, without = report["results"], report["baseline"]
                ratios.append(with_drafts["output_tokens_per_s"] / without["output_tokens_per_s"])
                rates.append(with_drafts["output_tokens_per_s"])
                accepted.append(with_drafts["accepted_tokens"] / max(1.0, with_drafts["drafted_tokens"]))
            line(f"{name}: drafting against none, {count} streams",
                 f"{statistics.median(ratios):.2f} x, {statistics.median(rates):.0f} tokens/s",
                 f"{target}; {statistics.median(accepted):.0%} of the drafts kept")

    def prefix(self) -> None:
        """CPU time of all the server's threads for a prompt of 128k token ids that the cache has, up to its first token."""
        length = 128 * 1024
        command = (self.fixed, "--base-us", 100, "--max-model-len", 262144, "--pages", 2048, "--prefill-chunk", 4096)
        with running(*command) as (url, process):
            ids = [1000 + (i * 7919) % 1500 for i in range(length)]

            def ask() -> tuple[float, int]:
                before = cpu_seconds(process.pid)
                with post(url, {"prompt": ids, "max_tokens": 1, "temperature": 0}) as response:
                    usage = json.load(response)["usage"]
                return cpu_seconds(process.pid) - before, usage["prompt_tokens_details"]["cached_tokens"]

            ask()
            seconds, cached = zip(*(ask() for _ in range(2 * self.repeat + 1)))
        line("cached 128k-token prefix: CPU time to the first token", f"{statistics.median(seconds) * 1e3:.1f} ms",
             f"at most 20 ms; {min(cached)} of {length} tokens from the cache")


def post(url: str, body: dict) -> http.client.HTTPResponse:
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    return urllib.request.urlopen(request, timeout=600)


def complete(url: str, ids: list[int]) -> None:
    with post(url, {"prompt": ids, "max_tokens": 1, "temperature": 0}) as response:
        response.read()


def read_stream(url: str, tokens: int, arrivals: list[float]) -> None:
    """Appends the time of each event of a stream as it comes."""
    with post(url, {"prompt": [1000], "max_tokens": tokens, "temperature": 0, "stream": True, "ignore_eos": True}) as response:
        for entry in response:
            if entry.startswith(b"data: {"):
                arrivals.append(time.monotonic())


def cpu_seconds(pid: int) -> float:
    """Of all threads, so far."""
    nanoseconds = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            nanoseconds += int((task / "schedstat").read_text().split()[0])
    return nanoseconds * 1e-9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=Path, default=Path("build/cpu"))
    parser.add_argument("--only", default="scheduler,api,batch,budget,draft,prefix")
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    bench = Bench(arguments.build, arguments.repeat)
    for name in arguments.only.split(","):
        getattr(bench, name)()


if __name__ == "__main__":
    main()
