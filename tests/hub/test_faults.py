"""A hub that misbehaves: cut lines, changed files, wrong bytes, no bytes, too many bytes, a full disk."""
from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

from conftest import REPO, Place, binary, bytes_of, model
from fake_hub import (FakeHub, changes, corrupt, cut, no_ranges, raw, slow, stall, status)

SHARD = "model.safetensors"
BIG = 9_000_000


def add(hub: FakeHub, size: int = BIG) -> bytes:
    content = bytes_of(size, 7)
    hub.add(REPO, {"config.json": b"{}", SHARD: content})
    return content


def ranges(hub: FakeHub) -> list[tuple[int, int]]:
    """What was asked of the CDN."""
    found = [re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers["range"]) for request in hub.requests if request.role == "cdn"]
    return [(int(one[1]), int(one[2]) + 1) for one in found]


def stopped_at(place: Place, hub: FakeHub, how: signal.Signals, at_bytes: int) -> str:
    """Starts a pull and sends it a signal once so much has been written down; returns its errors."""
    process = place.start("pull", REPO)
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        notes = list(place.cache.rglob("*.nibble-parts"))
        # The small file is done, and so much of the large one.
        if len(notes) == 1 and list(place.cache.rglob("blobs/" + hub.file("config.json").git_blob)):
            lines = notes[0].read_text().splitlines()[2:]
            if sum(int(end) - int(begin) for begin, end in map(str.split, lines)) >= at_bytes:
                break
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(how)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == (-signal.SIGKILL if how == signal.SIGKILL else 1), errors
    return errors


def test_a_cut_line_goes_on_where_it_was(place: Place, hub: FakeHub) -> None:
    content = add(hub)
    hub.fault(SHARD, cut(after=3_000_000, times=2))
    assert (place.pulled() / SHARD).read_bytes() == content
    # Twice cut, twice gone on: no byte is asked for that has arrived.
    assert [begin for begin, _ in ranges(hub)] == [0, 3_000_000, 6_000_000]
    assert all("if-range" in request.headers for request in hub.requests if request.role == "cdn" and "bytes=0-" not in request.headers["range"])


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_pull_goes_on(place: Place, hub: FakeHub, how: signal.Signals) -> None:
    content = add(hub)
    hub.fault(SHARD, stall(after=6_000_000, times=1))
    errors = stopped_at(place, hub, how, 4_000_000)
    if how != signal.SIGKILL:
        assert "interrupted" in errors and "kept" in errors
    assert not (place.repository / "refs").exists() and len(place.leftovers()) == 2
    hub.forget()
    assert (place.pulled() / SHARD).read_bytes() == content
    assert min(begin for begin, _ in ranges(hub)) >= 4_000_000
    assert place.leftovers() == []


def test_resumed_against_a_server_without_ranges(place: Place, hub: FakeHub) -> None:
    content = add(hub)
    hub.fault(SHARD, stall(after=6_000_000, times=1))
    stopped_at(place, hub, signal.SIGKILL, 4_000_000)
    hub.fault(SHARD, no_ranges())
    result = place.pull()
    assert result.returncode == 0 and "200 to a range request: starting over" in result.stderr, result.stderr
    assert (Path(result.stdout.strip()) / SHARD).read_bytes() == content


def test_changed_between_two_attempts(place: Place, hub: FakeHub) -> None:
    content = add(hub)
    hub.fault(SHARD, stall(after=6_000_000, times=1))
    stopped_at(place, hub, signal.SIGKILL, 4_000_000)
    hub.file(SHARD).version = 5
    result = place.pull()
    assert result.returncode == 0 and "it changed on the server" in result.stderr and "starting over" in result.stderr
    assert (Path(result.stdout.strip()) / SHARD).read_bytes() == content


def test_what_was_kept_is_not_what_it_says(place: Place, hub: FakeHub) -> None:
    """A machine that lost power: noted as written, but zeros on the disk. Found by the hash, fetched again."""
    content = add(hub)
    hub.fault(SHARD, stall(after=6_000_000, times=1))
    stopped_at(place, hub, signal.SIGKILL, 4_000_000)
    partial, = place.cache.rglob("*.nibble-incomplete")
    with partial.open("r+b") as file:
        file.seek(1_000_000)
        file.write(bytes(4096))
    result = place.pull()
    assert result.returncode == 0 and "starting over" in result.stderr
    assert (Path(result.stdout.strip()) / SHARD).read_bytes() == content


@pytest.mark.parametrize("damage", [b"", b"nibble-parts 2 9000000\n", b"nibble-parts 1 9000000\n\"x\"\n5 99999999999\n", b"\0" * 100])
def test_damaged_notes_are_not_believed(place: Place, hub: FakeHub, damage: bytes) -> None:
    content = add(hub)
    hub.fault(SHARD, stall(after=6_000_000, times=1))
    stopped_at(place, hub, signal.SIGKILL, 4_000_000)
    parts, = place.cache.rglob("*.nibble-parts")
    parts.write_bytes(damage)
    assert (place.pulled() / SHARD).read_bytes() == content


def test_changed_during_the_download(place: Place, hub: FakeHub) -> None:
    """Another entity tag between two pieces: everything of that file again, then it is right."""
    content = bytes_of(40_000_000)
    hub.add(REPO, {"config.json": b"{}", SHARD: content})
    hub.fault(SHARD, changes(after_requests=1))
    result = place.pull()
    assert result.returncode == 0 and "it changed on the server" in result.stderr, result.stderr
    assert (Path(result.stdout.strip()) / SHARD).read_bytes() == content


def test_changes_without_end(place: Place, hub: FakeHub) -> None:
    content = bytes_of(40_000_000)
    hub.add(REPO, {"config.json": b"{}", SHARD: content})

    def fault(_: object, file: object) -> bool:
        file.version += 1
        return False
    hub.fault(SHARD, fault)
    result = place.pull()
    assert result.returncode == 1 and "giving up" in result.stderr and SHARD in result.stderr


def test_a_server_without_ranges(place: Place, hub: FakeHub) -> None:
    content = bytes_of(40_000_000)
    hub.add(REPO, {"config.json": b"{}", SHARD: content})
    hub.fault(SHARD, no_ranges())
    result = place.pull()
    assert result.returncode == 0 and "starting over" not in result.stderr
    assert (Path(result.stdout.strip()) / SHARD).read_bytes() == content
    assert len(ranges(hub)) == 1


def test_429_waits_as_long_as_it_says(place: Place, hub: FakeHub) -> None:
    content = add(hub, 100_000)
    hub.fault(SHARD, status(429, times=1, Retry_After="2"))
    begin = time.monotonic()
    assert (place.pulled() / SHARD).read_bytes() == content
    assert time.monotonic() - begin >= 2.0


def test_429_for_longer_than_we_wait(place: Place, hub: FakeHub) -> None:
    add(hub, 100_000)
    hub.fault(SHARD, status(429, times=99, Retry_After="4000"))
    result = place.pull()
    assert result.returncode == 1 and "429" in result.stderr and "4000 s" in result.stderr and SHARD in result.stderr


@pytest.mark.parametrize("where", [SHARD, "config.json", "api", "redirect " + SHARD])
def test_errors_that_pass(place: Place, hub: FakeHub, where: str) -> None:
    content = add(hub, 100_000)
    hub.fault(where, status(503, times=1))
    hub.fault(where, status(500, times=1))
    assert (place.pulled() / SHARD).read_bytes() == content


def test_an_error_that_stays(place: Place, hub: FakeHub) -> None:
    add(hub, 100_000)
    hub.fault(SHARD, status(500, times=99))
    result = place.pull("--retries", "2")
    assert result.returncode == 1 and SHARD in result.stderr and "answered 500" in result.stderr
    assert len(ranges(hub)) == 3


def test_a_signed_address_that_expires(place: Place, hub: FakeHub) -> None:
    """The first redirect's address is good for one request; the hub is asked for another."""
    content = bytes_of(70_000_000)
    hub.add(REPO, {"config.json": b"{}", SHARD: content})
    seen = []

    def fault(handler: object, file: object) -> bool:
        if not handler.path.endswith("signature=1"):
            return False
        seen.append(1)
        return len(seen) > 1 and (handler.reply(403, b"expired") or True)
    hub.fault(SHARD, fault)
    assert (place.pulled() / SHARD).read_bytes() == content
    assert hub.signature >= 2


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
    hub.fault("redirect " + SHARD, status(302, times=99, X_Linked_Size="12", Location=hub.cdn.url + "/x"))
    hub.fault(SHARD, status(200))
    file = hub.file(SHARD)
    hub.faults["redirect " + SHARD] = [lambda handler, _: handler.reply(
        302, X_Linked_Size="12", X_Linked_Etag=f'"{file.sha256}"',
        Location=f"{hub.cdn.url}/blob/{REPO}/{hub.refs[REPO, 'main']}/{SHARD}") or True]
    hub.faults[SHARD] = []
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


@pytest.mark.parametrize("body", [True, False])
def test_a_server_that_stops_talking(place: Place, hub: FakeHub, body: bool) -> None:
    content = add(hub, 100_000)
    hub.fault(SHARD, stall(after=50_000, times=1) if body else raw(b"", forever=b""))
    if not body:
        hub.faults[SHARD] = []
        silent = []

        def fault(handler: object, _: object) -> bool:
            silent.append(1)
            if len(silent) > 1:
                return False
            time.sleep(8)
            handler.hang_up()
            return True
        hub.fault(SHARD, fault)
    begin = time.monotonic()
    assert (place.pulled("--timeout", "1") / SHARD).read_bytes() == content
    assert time.monotonic() - begin < 60


def test_a_slow_server_is_given_time(place: Place, hub: FakeHub) -> None:
    content = add(hub, 100_000)
    hub.fault(SHARD, slow(40_000))
    assert (place.pulled("--timeout", "1") / SHARD).read_bytes() == content
    assert len(ranges(hub)) == 1


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


def test_a_disk_that_is_too_small(place: Place, hub: FakeHub) -> None:
    """Said before the first byte, with what could be deleted."""
    old = place.cache / "models--old--model" / "blobs"
    old.mkdir(parents=True)
    (old / "x").write_bytes(bytes_of(3_000_000))
    hub.add(REPO, model())
    hub.tree = [{"type": "file", "path": "config.json", "size": 2, "oid": "0" * 40},
                {"type": "file", "path": SHARD, "size": 10**13, "oid": "0" * 40, "lfs": {"oid": "1" * 64, "size": 10**13}}]
    result = place.pull()
    assert result.returncode == 1 and hub.data_requests() == []
    assert "10.0 TB needed" in result.stderr and "missing" in result.stderr
    assert re.search(r"3\.\d\d MB +old/model", result.stderr), result.stderr


def limited(place: Place, bytes_a_file: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run([binary(), "pull", REPO], capture_output=True, text=True, env=place.env, timeout=100,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_a_file, bytes_a_file)))


def test_a_disk_that_refuses(place: Place, hub: FakeHub) -> None:
    """The system refuses a write: said, kept, and gone on with later."""
    content = add(hub)
    result = limited(place, 6_000_000)
    assert result.returncode == 1 and "nibble-incomplete" in result.stderr and "kept" in result.stderr, result.stderr
    assert not (place.repository / "refs").exists()
    hub.forget()
    assert (place.pulled() / SHARD).read_bytes() == content
    assert min(begin for begin, _ in ranges(hub)) >= 4_000_000


def test_a_disk_that_fills(place: Place, hub: FakeHub) -> None:
    """A real file system of 16 MB that somebody else fills during the download."""
    content = add(hub)
    place.cache.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", place.cache],
                                           capture_output=True).returncode != 0:
        pytest.skip("needs root and mount")
    try:
        hub.fault(SHARD, stall(after=6_000_000, times=1))
        process = place.start("pull", REPO, "--timeout", "1")
        limit = time.monotonic() + 60
        while not any(path.stat().st_blocks * 512 > 5_000_000 for path in place.cache.rglob("*.nibble-incomplete")):
            assert process.poll() is None and time.monotonic() < limit
            time.sleep(0.01)
        with (place.cache / "somebody-elses").open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(65536))
            except OSError:
                pass
        errors = process.communicate(timeout=100)[1]
        assert process.returncode == 1 and "No space left on device" in errors and "kept" in errors, errors
        # Now it is known beforehand.
        hub.forget()
        result = place.pull()
        assert result.returncode == 1 and "too small" in result.stderr and hub.data_requests() == []
        (place.cache / "somebody-elses").unlink()
        snapshot = place.pulled()
        assert (snapshot / SHARD).read_bytes() == content
    finally:
        subprocess.run(["umount", place.cache], check=True)


def test_no_libcurl_no_network(place: Place, hub: FakeHub) -> None:
    """Commands that need no network do not load it."""
    add(hub, 1000)
    trace = place.run("--version", LD_DEBUG="files").stderr
    assert "libcurl" not in trace and "libc.so" in trace
