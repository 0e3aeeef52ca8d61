"""Downloads that break off: cut lines, signals, changed files. What has arrived is used only where it still fits."""
from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from conftest import REPO, SHARD, Place, add, bytes_of, ranges
from fake_hub import FakeHub, changes, cut, no_ranges, stall


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
