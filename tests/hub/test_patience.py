"""Servers that are busy, broken for a moment, slow, or silent: waited for, and not for ever."""
from __future__ import annotations

import time

import pytest

from conftest import SHARD, Place, add, ranges
from fake_hub import FakeHub, silent, slow, stall, status


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


def test_a_server_that_stops_talking(place: Place, hub: FakeHub) -> None:
    """Once in the middle of a body, once before the first byte."""
    content = add(hub, 100_000)
    hub.fault(SHARD, stall(after=50_000))
    hub.fault("config.json", stall(after=0))
    begin = time.monotonic()
    assert (place.pulled("--timeout", "1") / SHARD).read_bytes() == content
    assert time.monotonic() - begin < 60
    assert ranges(hub) == [(0, 100_000), (50_000, 100_000)]


def test_no_answer_at_all(place: Place, hub: FakeHub) -> None:
    add(hub, 1000)
    hub.fault("api", silent())
    result = place.pull("--timeout", "1", "--retries", "0")
    assert result.returncode == 1 and hub.url in result.stderr


def test_a_slow_server_is_given_time(place: Place, hub: FakeHub) -> None:
    content = add(hub, 100_000)
    hub.fault(SHARD, slow(40_000))
    assert (place.pulled("--timeout", "1") / SHARD).read_bytes() == content
    assert len(ranges(hub)) == 1
