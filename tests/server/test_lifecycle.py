"""Start, readiness, stop."""
from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from conftest import binary, eventually, http, model_folder, PATIENCE_S, Server

Start = Callable[..., Server]
CHAT = "/v1/chat/completions"
LONG = {"messages": [{"role": "user", "content": "hi"}], "ignore_eos": True, "temperature": 1, "seed": 1}


def test_states_from_the_first_moment(start: Start) -> None:
    server = start()
    statuses = []
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        health = http.get(server.url + "/health")
        statuses.append(health.status_code)
        assert http.get(server.url + "/live").status_code == 200
        if health.status_code == 200:
            break
        assert health.json()["status"] == "loading" and 0 <= health.json()["progress"] <= 1
        time.sleep(0.02)
    assert statuses[-1] == 200
    assert statuses == sorted(statuses, reverse=True)  # 503 until it is 200, and never back
    assert server.post(CHAT, {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}).status_code == 200
    assert len(re.findall(r"ready: ", server.log())) == 1
    for column in ("layer kind", "format", "kernel", "unit"):
        assert column in server.log()
    assert server.stop() == 0
    assert server.process.stdout and server.process.stdout.read() == b""  # stdout is for answers


def test_second_start_is_quick(start: Start) -> None:
    start().wait_ready().stop()
    begin = time.monotonic()
    start().wait_ready()
    # 2 s is the promise for a release build on an idle machine; this one may be sanitized and busy.
    assert time.monotonic() - begin < 60


def test_port_in_use(start: Start) -> None:
    first = start()
    port = first.url.rsplit(":", 1)[1]
    second = subprocess.run([binary(), "serve", str(model_folder()), "--port", port], capture_output=True, text=True,
                            timeout=PATIENCE_S)
    assert second.returncode == 1
    assert f"port {port}" in second.stderr and "in use" in second.stderr
    assert http.get(first.url + "/live").status_code == 200


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_stop_when_idle(start: Start, signal_number: int) -> None:
    server = start().wait_ready()
    begin = time.monotonic()
    assert server.stop(signal_number) == 0
    assert time.monotonic() - begin < 10


def test_stop_while_loading(start: Start) -> None:
    assert start().stop(signal.SIGINT) == 0


def test_stop_lets_a_stream_finish(start: Start) -> None:
    server = start().wait_ready()
    results: list[str] = []

    def read() -> None:
        with http.stream("POST", server.url + CHAT, json=LONG | {"stream": True, "max_tokens": 400}) as r:
            results.append(r.read().decode())

    reader = threading.Thread(target=read)
    reader.start()
    assert eventually(lambda: server.metric("vllm:num_requests_running") == 1)
    server.process.send_signal(signal.SIGTERM)
    try:
        # Signals and requests have no order: at some moment, and from then on, new work is refused.
        assert eventually(lambda: http.get(server.url + "/health").status_code == 503)
        assert server.post(CHAT, LONG | {"max_tokens": 1}).status_code == 503
    except httpx.TransportError:
        pass  # the stream was over before: nothing left to wait for
    reader.join()
    assert results[0].rstrip().endswith("data: [DONE]")
    assert '"finish_reason":"length"' in results[0]
    assert server.process.wait(PATIENCE_S) == 0


def test_drain_time_is_a_limit(start: Start) -> None:
    server = start("--drain-seconds", "1").wait_ready()
    parts = server.url.removeprefix("http://").split(":")
    connection = socket.create_connection((parts[0], int(parts[1])))
    body = b'{"messages":[{"role":"user","content":"hi"}],"ignore_eos":true,"temperature":1,"max_tokens":8000,"stream":true}'
    connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                       b"Content-Length: %d\r\n\r\n" % len(body) + body)
    assert eventually(lambda: server.metric("vllm:num_requests_running") == 1)
    begin = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - begin < 60
    text = b""
    while chunk := connection.recv(65536):
        text += chunk
    # Either it was cut off and told so, or the machine was quick enough to finish.
    assert b"the server is stopping" in text or b'"finish_reason":"length"' in text
    connection.close()


def test_second_signal_is_immediate(start: Start) -> None:
    server = start().wait_ready()
    with http.stream("POST", server.url + CHAT, json=LONG | {"stream": True, "max_tokens": 8000}) as response:
        next(response.iter_raw())
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        assert server.stop() == 0
        assert time.monotonic() - begin < 10


def test_damaged_checkpoint_is_refused(start: Start, tmp_path: Path) -> None:
    for file in model_folder().iterdir():
        target = tmp_path / file.name
        if file.is_file() and not file.name.endswith(".safetensors"):
            target.write_bytes(file.read_bytes())
        elif file.is_file():
            target.write_bytes(file.read_bytes()[:-1000])
    result = subprocess.run([binary(), "serve", str(tmp_path), "--port", "0"], capture_output=True, text=True, timeout=PATIENCE_S)
    assert result.returncode == 3
    assert ".safetensors" in result.stderr
    assert "ready" not in result.stderr


def test_nothing_in_a_checkpoint_is_run(start: Start, tmp_path: Path) -> None:
    """The encoder file is read as data: code beside its literals leaves no trace."""
    folder = tmp_path / "model"
    (folder / "encoding").mkdir(parents=True)
    for file in model_folder().iterdir():
        if file.is_file():
            shutil.copyfile(file, folder / file.name)
    marker = tmp_path / "marker"
    encoder = next((model_folder() / "encoding").glob("*.py"))
    trap = f"\nimport pathlib\npathlib.Path({str(marker)!r}).touch()\n"
    (folder / "encoding" / encoder.name).write_text(encoder.read_text(encoding="utf-8") + trap, encoding="utf-8")
    server = start("--trust-remote-code", model=str(folder)).wait_ready()
    assert "trust-remote-code" in server.log() and "ever run" in server.log()
    assert server.post(CHAT, {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}).status_code == 200
    assert not marker.exists()
