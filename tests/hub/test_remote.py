"""A checkpoint that is looked at where it lies: few requests, few bytes, nothing believed."""
from __future__ import annotations

import json
import os
import subprocess
import time

import pytest

from conftest import PATIENCE_S, REPO, SOURCE, Place, bytes_of
from fake_hub import FakeHub, cut, no_ranges, raw, status

DRIVER = os.environ.get("NIBBLE_REMOTE_CASES", str(SOURCE / "build/cpu/tests/hub/remote_cases"))


def look(place: Place, *arguments: str, repo: str = REPO, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([DRIVER, repo, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, env={**place.env, **env})


def shard(tensors: dict[str, int], seed: int = 1, padding: int = 0) -> bytes:
    """A safetensors file of U8 tensors; the header is `padding` bytes longer than it need be."""
    header, at = {}, 0
    for name, size in tensors.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode() + b" " * padding
    return len(text).to_bytes(8, "little") + text + bytes_of(at, seed)


def checkpoint(shards: int, size: int = 300_000, padding: int = 0) -> dict[str, bytes]:
    names = [f"model-{number:05}-of-{shards:05}.safetensors" for number in range(1, shards + 1)]
    files = {name: shard({f"layers.{number}.a": size, f"layers.{number}.b": size}, number, padding)
             for number, name in enumerate(names)}
    weight_map = {f"layers.{number}.{part}": name for number, name in enumerate(names) for part in "ab"}
    return {"config.json": b'{"model_type": "x"}', "tokenizer.json": bytes_of(1000), "encoding/x.py": b"",
            "model.safetensors.index.json": json.dumps({"weight_map": weight_map}).encode(), **files}


def test_headers_only(place: Place, hub: FakeHub) -> None:
    """46 shards: the commit, the tree, config, index, and for each shard the redirect and one range."""
    files = checkpoint(46)
    hub.add(REPO, files)
    result = look(place)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == f"model {REPO} remote {sum(map(len, files.values()))}"
    assert lines[1] == 'config {"model_type": "x"}'
    assert len(lines) == 2 + 92 and "layers.45.b U8 300000" in lines
    assert len(hub.requests) == 4 + 2 * 46
    ranges = [request.headers["range"] for request in hub.requests if request.role == "cdn"]
    assert ranges == [f"bytes=0-{(256 << 10) - 1}"] * 46
    assert not place.cache.exists()


def test_shards_are_fetched_side_by_side(place: Place, hub: FakeHub) -> None:
    hub.add(REPO, checkpoint(46))
    delay_s = 0.2
    for number in range(1, 47):
        hub.fault(f"model-{number:05}-of-00046.safetensors", lambda *_: time.sleep(delay_s) and False)
    begin = time.monotonic()
    assert look(place).returncode == 0
    assert time.monotonic() - begin < 46 * delay_s / 2


def test_a_long_header_costs_a_second_request(place: Place, hub: FakeHub) -> None:
    hub.add(REPO, checkpoint(3, padding=700_000, size=4_000_000))
    assert look(place).returncode == 0
    assert sum(request.role == "cdn" for request in hub.requests) == 6


def test_bytes_of_tensors(place: Place, hub: FakeHub) -> None:
    files = checkpoint(2, size=3_000_000)
    hub.add(REPO, files)
    result = look(place, "--bytes")
    assert result.returncode == 0, result.stderr
    for number, name in enumerate(sorted(name for name in files if name.endswith(".safetensors"))):
        data = files[name][8 + int.from_bytes(files[name][:8], "little"):]
        assert f"layers.{number}.a U8 3000000 {data[:16].hex()}" in result.stdout
        assert f"layers.{number}.b U8 3000000 {data[3_000_000:3_000_016].hex()}" in result.stdout


def test_what_is_in_the_cache_is_read_there(place: Place, hub: FakeHub) -> None:
    hub.add(REPO, checkpoint(2))
    place.pulled()
    hub.forget()
    result = look(place)
    assert result.returncode == 0 and " local -1" in result.stdout and hub.requests == []


def test_at_a_revision(place: Place, hub: FakeHub) -> None:
    hub.add(REPO, checkpoint(2))
    hub.add(REPO, checkpoint(1), revision="v2")
    result = look(place, repo=f"{REPO}@v2")
    assert result.returncode == 0 and result.stdout.count("layers") == 2


def test_offline(place: Place, hub: FakeHub) -> None:
    hub.add(REPO, checkpoint(2))
    result = look(place, HF_HUB_OFFLINE="1")
    assert result.returncode == 1 and "HF_HUB_OFFLINE" in result.stderr and REPO in result.stderr and hub.requests == []


def test_no_such_repository(place: Place, hub: FakeHub) -> None:
    result = look(place)
    assert result.returncode == 2 and "no such repository" in result.stderr


def test_token_goes_to_the_hub_alone(place: Place, hub: FakeHub) -> None:
    hub.token = "hf_secret"
    hub.add(REPO, checkpoint(2))
    result = look(place, HF_TOKEN="hf_secret")
    assert result.returncode == 0 and "hf_secret" not in result.stderr + result.stdout
    assert all(("authorization" in request.headers) == (request.role == "hub") for request in hub.requests)
    assert look(place).returncode == 1


def test_200_to_a_range_request_is_refused_unread(place: Place, hub: FakeHub) -> None:
    hub.add(REPO, checkpoint(1, size=4_000_000))
    name = "model-00001-of-00001.safetensors"
    sent = []

    def fault(handler: object, file: object) -> bool:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(file.content)))
        handler.end_headers()
        try:
            for _ in range(8):
                handler.wfile.write(file.content[:1_000_000])
                sent.append(1_000_000)
                time.sleep(0.1)
        finally:
            handler.close_connection = True
        return True
    hub.fault(name, fault)
    result = look(place)
    assert result.returncode == 3 and name in result.stderr and "expected 206" in result.stderr and "nibble pull" in result.stderr
    assert len(sent) < 8 * 2  # two tries at most, neither to its end


def test_a_small_shard_needs_no_ranges(place: Place, hub: FakeHub) -> None:
    files = {"config.json": b"{}", "model.safetensors": shard({"x": 100})}
    hub.add(REPO, files)
    hub.fault("model.safetensors", no_ranges())
    assert look(place, "--bytes").returncode == 0


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_wrong_bytes_of_a_whole_file(place: Place, hub: FakeHub, name: str) -> None:
    files = {"config.json": b'{"a": 1}', "model.safetensors": shard({"x": 100})}
    hub.add(REPO, files)
    wrong = files[name].replace(b"a", b"b").replace(b"x", b"y")
    hub.fault(name, lambda handler, file: handler.reply(200, wrong, ETag=file.etag) or True)
    result = look(place)
    assert result.returncode == 3 and name in result.stderr and "expected" in result.stderr and "found" in result.stderr


def test_a_file_that_changes(place: Place, hub: FakeHub) -> None:
    hub.add(REPO, checkpoint(1, padding=700_000, size=4_000_000))

    def fault(_: object, file: object) -> bool:
        file.version += 1
        return False
    hub.fault("model-00001-of-00001.safetensors", fault)
    result = look(place)
    assert result.returncode == 3 and "changed while it was read" in result.stderr


@pytest.mark.parametrize("fault", [cut(100), status(503), status(429, Retry_After="1")])
def test_faults_that_pass(place: Place, hub: FakeHub, fault: object) -> None:
    hub.add(REPO, checkpoint(2))
    hub.fault("model-00002-of-00002.safetensors", fault)
    hub.fault("config.json", status(500))
    assert look(place).returncode == 0


@pytest.mark.parametrize(("head", "message"), [
    (b"HTTP/1.1 206 P\r\nContent-Range: bytes 0-262143/262145\r\n\r\n", "262145"),
    (b"HTTP/1.1 206 P\r\nContent-Range: bytes 1-262144/8000300\r\n\r\n", "asked for bytes"),
    (b"HTTP/1.1 206 P\r\n\r\n", "asked for bytes")])
def test_answers_that_lie(place: Place, hub: FakeHub, head: bytes, message: str) -> None:
    hub.add(REPO, checkpoint(1, size=4_000_000))
    hub.fault("model-00001-of-00001.safetensors", raw(head, forever=bytes(10_000)))
    result = look(place)
    assert result.returncode == 3 and "model-00001" in result.stderr and message in result.stderr


def test_more_bytes_than_asked_for(place: Place, hub: FakeHub) -> None:
    hub.add(REPO, checkpoint(1, size=4_000_000))
    size = len(hub.file("model-00001-of-00001.safetensors").content)
    hub.fault("model-00001-of-00001.safetensors",
              raw(b"HTTP/1.1 206 P\r\nContent-Range: bytes 0-262143/%d\r\n\r\n" % size, forever=bytes(10_000)))
    result = look(place)
    assert result.returncode == 3 and "more bytes" in result.stderr


def test_a_header_as_long_as_the_file(place: Place, hub: FakeHub) -> None:
    """Lengths out of a file's first bytes decide nothing about memory."""
    content = (90_000_000).to_bytes(8, "little") + bytes(6_000_000)
    hub.add(REPO, {"config.json": b"{}", "model.safetensors": content})
    result = look(place)
    assert result.returncode == 3 and "truncated inside its header" in result.stderr
    assert sum(request.role == "cdn" for request in hub.requests) == 1
