"""Answers that a server should not give: wrong bytes, wrong sizes, no end, redirects to nowhere."""
from __future__ import annotations

import re

import pytest

from conftest import REPO, SHARD, Place, add, ranges
from fake_hub import FakeHub, corrupt, raw, status


@pytest.mark.parametrize("name", [SHARD, "config.json"])
def test_wrong_bytes(place: Place, hub: FakeHub, name: str) -> None:
    add(hub, 100_000)
    file = hub.file(name)
    hub.fault(name, corrupt())
    result = place.pull()
    assert result.returncode == 3
    expected = file.sha256 if file.lfs else file.git_blob
    found = re.search(r"found ([0-9a-f]+)", result.stderr)
    assert name in result.stderr and expected in result.stderr and found and found[1] != expected
    assert not (place.repository / "snapshots").exists() and not (place.repository / "refs").exists()
    assert not any(expected in path.name for path in place.cache.rglob("*") if path.suffix != ".lock")


@pytest.mark.parametrize(("answer", "message"), [
    (b"HTTP/1.1 206 Partial\r\nContent-Range: bytes 0-99999/100001\r\nContent-Length: 100000\r\n\r\n", "100001"),
    (b"HTTP/1.1 206 Partial\r\nContent-Range: bytes 5-99999/100000\r\nContent-Length: 99995\r\n\r\n", "sends 5-99999"),
    (b"HTTP/1.1 206 Partial\r\nContent-Range: bytes */100000\r\n\r\n", "Content-Range"),
    (b"HTTP/1.1 206 Partial\r\nContent-Range: bytes 0-99999/99999\r\n\r\n", "Content-Range"),
    (b"HTTP/1.1 206 Partial\r\n\r\n", "Content-Range"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 7000000000\r\n\r\n", "7000000000"),
])
def test_lying_sizes(place: Place, hub: FakeHub, answer: bytes, message: str) -> None:
    add(hub, 100_000)
    hub.fault(SHARD, raw(answer, forever=bytes(1000)))
    result = place.pull("--retries", "1")
    assert result.returncode == 3 and SHARD in result.stderr and message in result.stderr, result.stderr


def test_a_redirect_that_lies(place: Place, hub: FakeHub) -> None:
    add(hub, 100_000)
    hub.fault("redirect " + SHARD, status(302, X_Linked_Size="12",
                                          Location=f"{hub.cdn.url}/blob/{REPO}/{hub.refs[REPO, 'main']}/{SHARD}"))
    result = place.pull()
    assert result.returncode == 3 and "its redirect '12'" in result.stderr


def test_an_endless_body(place: Place, hub: FakeHub) -> None:
    add(hub, 100_000)
    hub.fault(SHARD, raw(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", forever=bytes(65536)))
    result = place.pull()
    assert result.returncode == 3 and "more than the 100000 bytes" in result.stderr
    assert sum(path.stat().st_size for path in place.cache.rglob("*") if path.is_file()) < 1_000_000


def test_endless_headers(place: Place, hub: FakeHub) -> None:
    add(hub, 100_000)
    hub.fault(SHARD, raw(b"HTTP/1.1 200 OK\r\n", forever=b"X-More: " + b"x" * 1000 + b"\r\n"))
    result = place.pull("--retries", "0", "--timeout", "2")
    assert result.returncode in (1, 3) and SHARD in result.stderr


def test_a_body_that_ends_early(place: Place, hub: FakeHub) -> None:
    """No Content-Length, closed too soon: only the count of bytes can tell."""
    content = add(hub, 100_000)
    struck = []

    def fault(handler: object, file: object) -> bool:
        struck.append(1)
        if len(struck) > 1:
            return False
        handler.wfile.write(b"HTTP/1.1 206 Partial\r\nContent-Range: bytes 0-99999/100000\r\nETag: %s\r\n"
                            b"Connection: close\r\n\r\n" % file.etag.encode() + content[:60_000])
        handler.hang_up()
        return True
    hub.fault(SHARD, fault)
    assert (place.pulled() / SHARD).read_bytes() == content
    assert ranges(hub) == [(0, 100_000), (60_000, 100_000)]


def test_redirects_in_a_circle(place: Place, hub: FakeHub) -> None:
    add(hub, 100_000)
    hub.fault("redirect " + SHARD, lambda handler, _: handler.reply(302, Location=handler.path) or True)
    result = place.pull()
    assert result.returncode == 1 and "redirected more than 5 times" in result.stderr


@pytest.mark.parametrize("target", ["ftp://127.0.0.1/x", "file:///etc/passwd", "http://user:word@127.0.0.1/x", "gopher:x", ""])
def test_redirects_elsewhere(place: Place, hub: FakeHub, target: str) -> None:
    add(hub, 100_000)
    hub.fault("redirect " + SHARD, lambda handler, _: handler.reply(302, Location=target) or True)
    result = place.pull("--retries", "0")
    assert result.returncode == 1 and SHARD in result.stderr and "redirected" in result.stderr
