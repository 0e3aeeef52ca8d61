"""The disk: too small, refusing, filling up, shared with other programs."""
from __future__ import annotations

import fcntl
import os
import re
import resource
import subprocess
import threading
import time

import pytest

from conftest import REPO, SHARD, Place, add, binary, bytes_of, model, ranges
from fake_hub import FakeHub, stall


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
        go = threading.Event()
        hub.fault(SHARD, stall(after=6_000_000, times=1, event=go))
        process = place.start("pull", REPO)
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
        go.set()
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


def test_another_tool_writes_a_blob(place: Place, hub: FakeHub) -> None:
    """The other tools of the hub lock each blob; what they bring meanwhile is hashed and taken."""
    content = add(hub)
    file = hub.file(SHARD)
    lock = place.cache / ".locks" / place.repository.name / f"{file.sha256}.lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        process = place.start("pull", REPO)
        errors = ""
        while "another program" not in errors:
            line = process.stderr.readline()
            assert line, errors
            errors += line
        blob = place.repository / "blobs" / file.sha256
        blob.write_bytes(content)
        fcntl.flock(held, fcntl.LOCK_UN)
        process.communicate(timeout=100)
    assert process.returncode == 0
    assert not any(SHARD in request.path for request in hub.data_requests())


def test_a_cache_that_cannot_be_written(place: Place, hub: FakeHub) -> None:
    add(hub, 1000)
    place.cache.write_text("a file where the cache should be")
    result = place.pull()
    assert result.returncode == 1 and str(place.cache) in result.stderr


def test_links_in_the_cache_are_not_followed(place: Place, hub: FakeHub) -> None:
    """A temporary name that is a link to somebody's file: replaced, never written through."""
    content = add(hub)
    victim = place.home / "victim"
    victim.write_text("mine")
    blobs = place.repository / "blobs"
    blobs.mkdir(parents=True)
    for ending in (".nibble-incomplete", ".nibble-parts"):
        (blobs / (hub.file(SHARD).sha256 + ending)).symlink_to(victim)
    assert (place.pulled() / SHARD).read_bytes() == content
    assert victim.read_text() == "mine"
