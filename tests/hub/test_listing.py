"""Listings that a hub should never send: nothing is written for them."""
from __future__ import annotations

import json

import pytest

from conftest import REPO, Place, model
from fake_hub import FakeHub, raw

OID = "0" * 40


def entry(path: object, size: object = 3, oid: object = OID, **more: object) -> dict[str, object]:
    return {"type": "file", "path": path, "size": size, "oid": oid, **more}


def refused(place: Place, hub: FakeHub, tree: object) -> str:
    hub.add(REPO, model())
    hub.tree = tree
    result = place.pull()
    assert result.returncode == 3, result.stderr
    assert hub.data_requests() == []
    assert not place.repository.exists()
    return result.stderr


@pytest.mark.parametrize("name", [
    "../x.json", "a/../../x.json", "/etc/x.json", "a//x.json", "./x.json", "a/./x.json", "..", ".", "", "a/", "a\\b.json",
    "a\nb.json", "a\x1b[31m.json", "a\0b.json", "x" * 256 + ".json", "a/" * 17 + "x.json", "a/" * 600 + "x"])
def test_hostile_names(place: Place, hub: FakeHub, name: str) -> None:
    errors = refused(place, hub, [entry("config.json"), entry(name)])
    assert "file name" in errors and "\x1b" not in errors and "\0" not in errors


@pytest.mark.parametrize(("paths", "message"), [
    (["config.json", "Config.json"], "upper and lower case"), (["a/x.json", "A/y.json"], "upper and lower case"),
    (["config.json", "config.json"], "listed twice"), (["a", "a/x.json"], "a file and a folder"),
    (["A", "a/x.json"], "a file and a folder")])
def test_names_that_collide(place: Place, hub: FakeHub, paths: list[str], message: str) -> None:
    assert message in refused(place, hub, [entry(path) for path in paths])


@pytest.mark.parametrize("bad", [
    entry("a.json", -1), entry("a.json", 1 << 63), entry("a.json", 1 << 45), entry("a.json", "3"), entry("a.json", 1.5),
    entry("a.json", None), {"type": "file", "path": "a.json", "oid": OID}, entry("a.json", 3, "xyz"), entry("a.json", 3, OID + "0"),
    entry("a.json", 3, "../../../../x"), entry("a.json", 3, None), entry(7), {"path": "a.json", "size": 1, "oid": OID},
    entry("a.json", lfs={"oid": OID, "size": 3}), entry("a.json", lfs={"oid": "../" + "0" * 61, "size": 3}),
    entry("a.json", lfs={"oid": "1" * 64, "size": 4}), entry("a.json", lfs={}), entry("a.json", lfs=7), 7, None, [], "x"])
def test_bad_entries(place: Place, hub: FakeHub, bad: object) -> None:
    assert hub.url in refused(place, hub, [entry("config.json"), bad])


@pytest.mark.parametrize("text", [b"", b"{}", b"[", b"[{}]", b"<html>", b"[] []", b"\xff\xfe", b"[" * 100_000, b"null"])
def test_bad_json(place: Place, hub: FakeHub, text: bytes) -> None:
    assert hub.url in refused(place, hub, text)


def test_too_many_files(place: Place, hub: FakeHub) -> None:
    assert "more than 20000 files" in refused(place, hub, [entry(f"f{number}.json") for number in range(20_001)])


def test_a_listing_without_end(place: Place, hub: FakeHub) -> None:
    assert "longer than" in refused(place, hub, b"[" + b" " * 33_000_000)


def test_pages_without_end(place: Place, hub: FakeHub) -> None:
    hub.add(REPO, model())
    path = f"/api/models/{REPO}/tree/x"
    hub.fault("api", lambda handler, _: "/tree/" in handler.path and (
        handler.json([], Link=f'<{path}>; rel="next"') or True))
    result = place.pull()
    assert result.returncode == 3 and "more than 200 pages" in result.stderr


def test_the_next_page_is_elsewhere(place: Place, hub: FakeHub) -> None:
    """The token would go with the request."""
    hub.add(REPO, model())
    hub.fault("api", lambda handler, _: "/tree/" in handler.path and (
        handler.json([], Link=f'<{hub.cdn.url}/x>; rel="next"') or True))
    result = place.pull(HF_TOKEN="hf_secret")
    assert result.returncode == 3 and "next page" in result.stderr
    assert all(request.role == "hub" for request in hub.requests)


@pytest.mark.parametrize("answer", [{}, {"sha": 1}, {"sha": "main"}, {"sha": "../../../../../../../../../../../../../.."},
                                    {"sha": "g" * 40}, [], {"sha": "0" * 64}])
def test_a_commit_that_is_none(place: Place, hub: FakeHub, answer: object) -> None:
    hub.add(REPO, model())
    hub.fault("api", lambda handler, _: handler.json(answer) or True)
    result = place.pull()
    assert result.returncode == 3 and hub.url in result.stderr


def test_another_commit_than_asked_for(place: Place, hub: FakeHub) -> None:
    commit = hub.add(REPO, model())
    hub.fault("api", lambda handler, _: handler.json({"sha": "1" * 40}) or True)
    result = place.pull(repo=f"{REPO}@{commit}")
    assert result.returncode == 3 and commit in result.stderr and "1" * 40 in result.stderr


def test_nothing_to_fetch(place: Place, hub: FakeHub) -> None:
    hub.add(REPO, {"weights.gguf": b"x"})
    result = place.pull()
    assert result.returncode == 3 and "--all" in result.stderr


def test_no_http_at_all(place: Place, hub: FakeHub) -> None:
    hub.add(REPO, model())
    hub.fault("api", raw(b"SSH-2.0-OpenSSH_9.2\r\n"))
    result = place.pull("--retries", "0")
    assert result.returncode == 1 and hub.url in result.stderr


@pytest.mark.parametrize("endpoint", ["ftp://x", "x", "http://", "http://u:secret@127.0.0.1", "http://h/?q", "file:///etc"])
def test_endpoints_that_are_none(place: Place, endpoint: str) -> None:
    result = place.pull(HF_ENDPOINT=endpoint)
    assert result.returncode == 2 and "HF_ENDPOINT" in result.stderr and "secret" not in result.stderr


def test_the_servers_own_lock_file_is_not_taken(place: Place, hub: FakeHub) -> None:
    hub.add(REPO, {**model(), "nibble.lock.json": b'{"version": 1}', "sub/Nibble.Lock.json": b"{}"})
    snapshot = place.pulled("--all")
    assert json.loads((snapshot / "nibble.lock.json").read_text())["repo"] == REPO
    assert not (snapshot / "sub").exists()
