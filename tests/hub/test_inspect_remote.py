"""`nibble inspect` of a repository that is not on this machine: the same answer as of the folder, and nothing downloaded."""
from __future__ import annotations

import json

import pytest

from conftest import REPO, Place
from test_plan_remote import TINY, files


@pytest.mark.parametrize("flags", [[], ["--scan"]])
def test_a_repository_is_inspected_where_it_is(place: Place, flags: list[str]) -> None:
    place.hub.add(REPO, files())
    result = place.run("inspect", REPO, "--json", *flags)
    assert result.returncode == 0, result.stderr
    remote = json.loads(result.stdout)
    local = json.loads(place.run("inspect", str(TINY), "--json", *flags).stdout)
    for answer in (remote, local):
        del answer["model"]
    assert remote == local and remote["verdict"] == "serve"
    assert not list(place.home.rglob("*.safetensors"))


def test_what_is_wrong_with_it_is_said_before_the_download(place: Place) -> None:
    damaged = files()
    shard = next(name for name in damaged if name.endswith(".safetensors"))
    damaged[shard] = damaged[shard][:-1000]
    place.hub.add(REPO, damaged)
    result = place.run("inspect", REPO)
    assert result.returncode == 3
    assert shard in result.stdout + result.stderr
