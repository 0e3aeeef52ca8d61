#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scores the bundled model through the server: greedy answers to held-out prompts, exact match a class.

    python tools/tiny/score.py --binary build/nibble [--model models/tiny] [--port 8017]
    python tools/tiny/score.py --base-url http://127.0.0.1:8000      a server that already runs
    options: --only json,tools, --count 500 prompts a class, --parallel 4, --out build/score.json, --show 3 wrong answers a class

Prints a table, writes JSON, and exits 1 when a class is under 90 % or the acceptance of drafted tokens under 60 %.
Needs the standard library only.
"""
import argparse
import http.client
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

from corpus import SCORED, held_out

ROOT = Path(__file__).resolve().parents[2]
WANTED_MATCH, WANTED_ACCEPTANCE = 0.90, 0.60
DRAFTED, ACCEPTED = "nibble:draft_tokens_total", "nibble:draft_tokens_accepted_total"


class Server:
    """One HTTP endpoint; a connection a request, so that it may be used from several threads."""

    def __init__(self, base_url: str):
        parts = urlsplit(base_url)
        self.host, self.port = parts.hostname or "127.0.0.1", parts.port or 80

    def request(self, method: str, path: str, body: dict | None = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=300)
        try:
            data = json.dumps(body).encode() if body is not None else None
            connection.request(method, path, data, {"Content-Type": "application/json"} if data else {})
            response = connection.getresponse()
            return response.status, response.read().decode("utf-8")
        finally:
            connection.close()

    def healthy(self) -> bool:
        try:
            return self.request("GET", "/health")[0] == 200
        except OSError:
            return False

    def model(self) -> str:
        return json.loads(self.request("GET", "/v1/models")[1])["data"][0]["id"]

    def counter(self, name: str) -> float:
        lines = self.request("GET", "/metrics")[1].splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith((name + "{", name + " ")))


def ask(server: Server, model: str, case: dict) -> dict:
    """The assistant's message; a request without an answer counts as a wrong one."""
    body = {"model": model, "messages": [{"role": "user", "content": case["user"]}], "temperature": 0, "max_tokens": 160}
    if case["tools"]:
        body["tools"] = [{"type": "function", "function": tool} for tool in case["tools"]]
    try:
        status, text = server.request("POST", "/v1/chat/completions", body)
    except OSError as error:
        return {"content": f"no answer: {error}"}
    if status != 200:
        raise RuntimeError(f"{status} for {case['user']!r}: {text[:300]}")
    return json.loads(text)["choices"][0]["message"]


def is_right(case: dict, message: dict) -> bool:
    calls = message.get("tool_calls") or []
    if case["call"] is None:
        return not calls and message.get("content") == case["answer"]
    if len(calls) != 1 or (message.get("content") or "").strip():
        return False
    function = calls[0]["function"]
    return function["name"] == case["call"]["name"] and json.loads(function["arguments"]) == case["call"]["arguments"]


def score(server: Server, kinds: list[str], count: int, parallel: int, show: int) -> dict:
    model = server.model()
    drafted, accepted = server.counter(DRAFTED), server.counter(ACCEPTED)
    out: dict = {"model": model, "prompts_a_class": count, "exact_match": {}, "seconds": {}}
    print(f"{'class':<8}{'right':>7}{'of':>6}{'exact match':>13}{'seconds':>9}")
    for kind in kinds:
        cases = held_out(kind, count)
        start = time.monotonic()
        with ThreadPoolExecutor(parallel) as pool:
            messages = list(pool.map(lambda case: ask(server, model, case), cases))
        seconds = time.monotonic() - start
        wrong = [(c, m) for c, m in zip(cases, messages) if not is_right(c, m)]
        right = count - len(wrong)
        out["exact_match"][kind], out["seconds"][kind] = right / count, round(seconds, 1)
        print(f"{kind:<8}{right:>7}{count:>6}{right / count:>12.1%} {seconds:>8.1f}", flush=True)
        for case, message in wrong[:show]:
            print(f"   asked {case['user']!r}, wanted {case['call'] or case['answer']!r}, got {message!r}")
    drafted, accepted = server.counter(DRAFTED) - drafted, server.counter(ACCEPTED) - accepted
    out["drafted_tokens"], out["accepted_tokens"] = drafted, accepted
    out["draft_acceptance"] = accepted / drafted if drafted else None
    print(f"drafts: {accepted:.0f} of {drafted:.0f} tokens accepted" + (f" ({accepted / drafted:.1%})" if drafted else ""))
    return out


def start_server(binary: Path, model: Path, port: int) -> tuple[subprocess.Popen, Server]:
    process = subprocess.Popen([binary, "serve", model, "--host", "127.0.0.1", "--port", str(port)], stdout=subprocess.DEVNULL)
    server = Server(f"http://127.0.0.1:{port}")
    deadline = time.monotonic() + 120
    while not server.healthy():
        if process.poll() is not None:
            sys.exit(f"{binary} ended with {process.returncode} before it served")
        if time.monotonic() > deadline:
            process.terminate()
            sys.exit(f"{binary} is not healthy after 120 s")
        time.sleep(0.1)
    return process, server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, default=ROOT / "build/nibble")
    parser.add_argument("--model", type=Path, default=ROOT / "models/tiny")
    parser.add_argument("--port", type=int, default=8017)
    parser.add_argument("--base-url")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(SCORED), help="classes, with commas between")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--show", type=int, default=3)
    parser.add_argument("--out", type=Path, default=ROOT / "build/score.json")
    args = parser.parse_args()
    process = None
    if args.base_url:
        server = Server(args.base_url)
    else:
        process, server = start_server(args.binary.resolve(), args.model.resolve(), args.port)
    try:
        result = score(server, args.only, args.count, args.parallel, args.show)
    finally:
        if process is not None:
            process.terminate()
            process.wait(timeout=30)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=2) + "\n")
    low = [kind for kind, share in result["exact_match"].items() if share < WANTED_MATCH]
    if result["draft_acceptance"] is None or result["draft_acceptance"] < WANTED_ACCEPTANCE:
        low.append("draft acceptance")
    if low:
        sys.exit("under the mark: " + ", ".join(low))


if __name__ == "__main__":
    main()
