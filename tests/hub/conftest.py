"""Runs the built executable against a hub of our own: nothing leaves this machine."""
from __future__ import annotations

import contextlib
import os
import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fake_hub import FakeHub

SOURCE = Path(__file__).resolve().parents[2]
PATIENCE_S = 120.0  # nothing takes so long on an idle machine; many share one
REPO = "someone/a.model"


def binary() -> str:
    path = os.environ.get("NIBBLE_BINARY", str(SOURCE / "build" / "nibble"))
    if not os.access(path, os.X_OK):
        pytest.fail(f"NIBBLE_BINARY: no executable {path}")
    return str(Path(path).resolve())


def bytes_of(size: int, seed: int = 1) -> bytes:
    """Bytes without a period that a chunk could hide behind."""
    return random.Random(seed).randbytes(size)


class Place:
    """A cache, a hub, and the executable that is run between them."""

    def __init__(self, home: Path, hub: FakeHub):
        self.home, self.hub = home, hub
        self.cache = home / "hub"
        self.env = {name: value for name, value in os.environ.items()
                    if not name.startswith("HF_") and not name.lower().endswith("_proxy")}
        self.env |= {"HF_HOME": str(home), "HF_ENDPOINT": hub.url, "NO_PROXY": "*"}

    def start(self, *arguments: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen([binary(), *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env={**self.env, **env})

    def run(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([binary(), *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=PATIENCE_S, env={**self.env, **env})

    def pull(self, *arguments: str, repo: str = REPO, **env: str) -> subprocess.CompletedProcess[str]:
        return self.run("pull", repo, *arguments, **env)

    def pulled(self, *arguments: str, repo: str = REPO, **env: str) -> Path:
        """The snapshot of a pull that must succeed."""
        result = self.pull(*arguments, repo=repo, **env)
        assert result.returncode == 0, result.stderr
        return Path(result.stdout.strip())

    @property
    def repository(self) -> Path:
        return self.cache / ("models--" + REPO.replace("/", "--"))

    def leftovers(self) -> list[str]:
        return sorted(path.name for path in self.cache.rglob("*nibble-*") if path.suffix != ".lock")


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with contextlib.closing(FakeHub()) as server:
        yield server


@pytest.fixture
def place(hub: FakeHub, tmp_path: Path) -> Place:
    return Place(tmp_path, hub)


def model(shard_bytes: int = 200_000, shards: int = 2) -> dict[str, bytes]:
    """What a repository of a model holds; the shards are not safetensors, which nothing here looks into."""
    files = {"config.json": b'{"model_type": "deepseek_v4"}', "tokenizer.json": b'{"a": 1}', "README.md": b"# a model\n",
             "LICENSE": b"terms", ".gitattributes": b"*.safetensors lfs", "encoding/encoding_dsv4.py": b"TURN = 'x'\n",
             "inference/model.py": b"raise SystemExit(1)\n", "pytorch_model.bin": b"pickle"}
    for number in range(1, shards + 1):
        files[f"model-{number:05}-of-{shards:05}.safetensors"] = bytes_of(shard_bytes, number)
    return files


# The repository of the tests of faults: one large file.
SHARD = "model.safetensors"


def add(hub: FakeHub, size: int = 9_000_000) -> bytes:
    content = bytes_of(size, 7)
    hub.add(REPO, {"config.json": b"{}", SHARD: content})
    return content


def ranges(hub: FakeHub) -> list[tuple[int, int]]:
    """What was asked of the CDN."""
    found = [re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers["range"]) for request in hub.requests if request.role == "cdn"]
    return [(int(one[1]), int(one[2]) + 1) for one in found]
