"""A small OpenAI-compatible server whose every answer is known beforehand: for tests of clients."""
from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODEL = "fake"


@dataclass
class Plan:
    """How chat completions are answered. An answer is a list of events, given by the tokens each brings."""

    events: tuple[int, ...] = (1, 2, 3)
    gap_s: float = 0.0
    knows_continuous_usage: bool = True
    knows_stream_options: bool = True
    cached_tokens: int | None = 4
    refusals: int = 0  # so many requests get 429 first
    retry_after: str = "1"
    die_after: int | None = None  # events, then the connection is cut
    hang: bool = False  # nothing comes after the head
    error_after: int | None = None  # events, then an error event
    bodies: list[dict] = field(default_factory=list)  # what was asked, the probe first


class FakeServer:
    def __init__(self, plan: Plan):
        self.plan = plan
        self.stop = threading.Event()
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                if self.path == "/v1/models":
                    self.reply(200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})
                else:
                    self.reply(404, {"error": {"message": "no such path", "code": "not_found"}})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with outer._lock:
                    plan.bodies.append(body)
                    refused = len(plan.bodies) > 1 and plan.refusals > 0
                    plan.refusals -= refused
                if refused:
                    return self.reply(429, {"error": {"message": "full", "code": "busy"}}, {"Retry-After": plan.retry_after})
                options = body.get("stream_options", {})
                if options and not plan.knows_stream_options or "continuous_usage_stats" in options and not plan.knows_continuous_usage:
                    return self.reply(400, {"error": {"message": "unknown field", "code": "unknown"}})
                self.stream(options)

            def reply(self, status: int, value: object, headers: dict[str, str] | None = None) -> None:
                data = json.dumps(value).encode()
                self.send_response(status)
                for name, text in (headers or {}).items():
                    self.send_header(name, text)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def chunk(self, data: bytes) -> None:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                self.wfile.flush()

            def event(self, value: object) -> None:
                self.chunk(b"data: %s\n\n" % json.dumps(value).encode())

            def usage(self, tokens: int) -> dict:
                usage: dict = {"prompt_tokens": 10, "completion_tokens": tokens, "total_tokens": 10 + tokens}
                if plan.cached_tokens is not None:
                    usage["prompt_tokens_details"] = {"cached_tokens": plan.cached_tokens}
                return usage

            def stream(self, options: dict) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                probe = len(plan.bodies) == 1
                if plan.hang and not probe:
                    outer.stop.wait(60)
                    self.close_connection = True
                    return
                tokens = 0
                self.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
                for number, count in enumerate(plan.events):
                    if plan.die_after == number and not probe:
                        self.close_connection = True
                        return  # without the last chunk
                    if plan.error_after == number and not probe:
                        self.event({"error": {"message": "went wrong", "code": "broken"}})
                        break
                    time.sleep(plan.gap_s)
                    tokens += count
                    event: dict = {"choices": [{"index": 0, "delta": {"content": "x" * count}}]}
                    if options.get("continuous_usage_stats"):
                        event["usage"] = self.usage(tokens)
                    self.event(event)
                self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
                if options.get("include_usage"):
                    self.event({"choices": [], "usage": self.usage(tokens)})
                self.chunk(b"data: [DONE]\n\n")
                self.wfile.write(b"0\r\n\r\n")

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self._thread = threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.stop.set()
        self.http.shutdown()
        self.http.server_close()
        self._thread.join()


MakeFake = Callable[..., FakeServer]
