#!/usr/bin/env python3
"""Speed of one user on a running or a freshly started server: time to first token, decode rate, prefill rate.

    bench/serve_speed.py --binary build/nibble [--model tiny] [--tokens 512] [--prompt 1024] [--repeat 5]
    bench/serve_speed.py --url http://127.0.0.1:8000 ...

Greedy, ignore_eos, one request at a time over streaming HTTP, so what a client sees. Each figure is the median of the
repeats, with the best beside it. The floor printed last is what reading the weights' bytes once a token would cost at the
copy bandwidth measured in the same run on one core; a small model's weights stay in the CPU's caches and can beat it.
"""
from __future__ import annotations

import argparse
import http.client
import json
import socket
import statistics
import subprocess
import sys
import time
import urllib.parse
from pathlib import Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def get(host: str, port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(host, port, timeout=60)
    connection.request("GET", path)
    response = connection.getresponse()
    return response.status, response.read()


def wait_ready(host: str, port: int, process: subprocess.Popen | None, limit_s: float) -> float:
    """Seconds until /health answers 200."""
    start = time.monotonic()
    while time.monotonic() - start < limit_s:
        if process is not None and process.poll() is not None:
            sys.exit(f"the server ended with status {process.returncode}")
        try:
            if get(host, port, "/health")[0] == 200:
                return time.monotonic() - start
        except OSError:
            pass
        time.sleep(0.01)
    sys.exit(f"the server was not healthy within {limit_s} s")


def stream(host: str, port: int, model: str, prompt: list[int], max_tokens: int) -> tuple[float, float, int]:
    """(seconds to the first token, seconds from first to last, tokens) of one streamed completion."""
    body = {"model": model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True,
            "stream": True, "stream_options": {"include_usage": True}}
    connection = http.client.HTTPConnection(host, port, timeout=600)
    start = time.monotonic()
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        sys.exit(f"HTTP {response.status}: {response.read().decode()}")
    first = last = 0.0
    tokens = 0
    for line in response:
        if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
            continue
        event = json.loads(line[6:])
        if event.get("choices"):
            last = time.monotonic()
            first = first or last
        if event.get("usage"):
            tokens = event["usage"]["completion_tokens"]
    if tokens != max_tokens:
        sys.exit(f"{tokens} tokens came back, {max_tokens} were asked for")
    return first - start, last - first, tokens


def copy_bandwidth() -> float:
    """Bytes read a second by a large copy on one core."""
    source, target = bytearray(256 << 20), bytearray(256 << 20)
    view = memoryview(target)

    def copy() -> None:
        view[:] = source

    copy()  # touch every page first
    return len(source) / min(timed(copy) for _ in range(3))


def timed(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--binary", type=Path)
    target.add_argument("--url")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--tokens", type=int, default=512, help="generated a request")
    parser.add_argument("--prompt", type=int, default=1024, help="prompt tokens of the prefill measurement")
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()

    process = None
    if arguments.binary:
        host, port = "127.0.0.1", free_port()
        process = subprocess.Popen([arguments.binary, "serve", arguments.model, "--host", host, "--port", str(port)],
                                   stderr=subprocess.DEVNULL)
    else:
        url = urllib.parse.urlsplit(arguments.url)
        host, port = url.hostname or "127.0.0.1", url.port or 8000
    try:
        ready_s = wait_ready(host, port, process, 120)
        if process is not None:
            print(f"ready            {ready_s:8.2f} s")
        served = json.loads(get(host, port, "/v1/models")[1])["data"][0]["id"]
        ids = [100 + (i * 37) % 400 for i in range(arguments.prompt)]  # any ids will do: speed does not depend on them
        stream(host, port, served, ids[:16], 16)  # warm

        decodes = [stream(host, port, served, ids[:16], arguments.tokens) for _ in range(arguments.repeat)]
        rates = [(tokens - 1) / seconds for _, seconds, tokens in decodes]
        print(f"decode           {statistics.median(rates):8.1f} tokens/s (best {max(rates):.1f}), 16 + {arguments.tokens} tokens")
        firsts = [first for first, _, _ in decodes]
        print(f"first token      {statistics.median(firsts) * 1e3:8.1f} ms (best {min(firsts) * 1e3:.1f}), 16 prompt tokens")
        prefills = [stream(host, port, served, ids, 1)[0] for _ in range(arguments.repeat)]
        print(f"prefill          {arguments.prompt / statistics.median(prefills):8.1f} tokens/s "
              f"(best {arguments.prompt / min(prefills):.1f}), {arguments.prompt} tokens")
    finally:
        if process is not None:
            process.terminate()
            process.wait(timeout=60)
    folder = Path(__file__).resolve().parents[1] / "models" / "tiny"
    if arguments.model == "tiny":
        weights = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
        bandwidth = copy_bandwidth()
        print(f"floor            {bandwidth / weights:8.1f} tokens/s if all {weights / 1e6:.1f} MB were read for each token "
              f"at {bandwidth / 1e9:.1f} GB/s")


if __name__ == "__main__":
    main()
