"""Starts the built server for the tests of this folder.

    NIBBLE_BINARY=build/nibble python -m pytest tests/server

NIBBLE_BINARY is the executable; NIBBLE_MODEL the model folder (default: the bundled models/tiny). Sanitizer builds are
slow: no test measures speed, and waits are long.
"""
from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import openai
import pytest

SOURCE = Path(__file__).resolve().parents[2]
PATIENCE_S = 300.0  # nothing takes so long on an idle machine; many share one

# One for all: making a client costs more than most requests. Proxies of the environment are not for 127.0.0.1.
http = httpx.Client(timeout=PATIENCE_S, trust_env=False, verify=False)


def binary() -> str:
    path = os.environ.get("NIBBLE_BINARY", str(SOURCE / "build" / "nibble"))
    if not os.access(path, os.X_OK):
        pytest.fail(f"NIBBLE_BINARY: no executable {path}")
    return str(Path(path).resolve())


def model_folder() -> Path:
    return Path(os.environ.get("NIBBLE_MODEL", SOURCE / "models" / "tiny"))


class Server:
    """One server process on a free port."""

    def __init__(self, *flags: str, model: str | None = None, env: dict[str, str] | None = None):
        self._log = tempfile.NamedTemporaryFile(mode="w+", suffix=".log", encoding="utf-8")
        command = [binary(), "serve", model or str(model_folder()), "--port", "0", *flags]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._log, env={**os.environ, **(env or {})})
        self.url = self._wait_for(r"http://[\d.]+:\d+")

    def log(self) -> str:
        return Path(self._log.name).read_text(encoding="utf-8")

    def _wait_for(self, pattern: str) -> str:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if found := re.search(pattern, self.log()):
                return found.group(0)
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        raise RuntimeError(f"no {pattern!r} in the server's log, exit status {self.process.poll()}:\n{self.log()}")

    def wait_ready(self) -> "Server":
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if http.get(self.url + "/health").status_code == 200:
                return self
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise RuntimeError(f"not ready, exit status {self.process.poll()}:\n{self.log()}")

    def client(self, **options: object) -> openai.OpenAI:
        defaults: dict[str, object] = {
            "api_key": "none", "max_retries": 0, "timeout": PATIENCE_S,
            "http_client": openai.DefaultHttpxClient(trust_env=False, verify=False)}
        return openai.OpenAI(base_url=self.url + "/v1", **(defaults | options))  # type: ignore[arg-type]

    def post(self, path: str, body: object) -> httpx.Response:
        return http.post(self.url + path, json=body)

    def metric(self, name: str) -> float:
        for line in http.get(self.url + "/metrics").text.splitlines():
            if line.startswith(name + "{"):
                return float(line.rsplit(" ", 1)[1])
        raise KeyError(name)

    def stop(self, signal_number: int = signal.SIGTERM) -> int:
        """The exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
        try:
            return self.process.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()
        self._log.close()


@pytest.fixture
def start() -> Iterator[Callable[..., Server]]:
    """Starts servers that end with the test."""
    with contextlib.ExitStack() as stack:

        def make(*flags: str, **options: object) -> Server:
            server = Server(*flags, **options)  # type: ignore[arg-type]
            stack.callback(server.close)
            return server

        yield make


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """One server for every test that leaves it as it was."""
    running = Server()
    try:
        running.wait_ready()
        yield running
        assert running.process.poll() is None, running.log()
        assert running.stop() == 0, running.log()
    finally:
        running.close()


@pytest.fixture(scope="session")
def client(server: Server) -> openai.OpenAI:
    return server.client()


@pytest.fixture(scope="session")
def model(client: openai.OpenAI) -> str:
    return client.models.list().data[0].id


def eventually(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False
