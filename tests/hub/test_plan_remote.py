"""`nibble plan` of a repository that is not on this machine: headers over range requests, nothing downloaded."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import REPO, SOURCE, Place

TINY = SOURCE / "models" / "tiny"


def files() -> dict[str, bytes]:
    return {str(path.relative_to(TINY)): path.read_bytes() for path in TINY.rglob("*") if path.is_file()}


def test_a_repository_is_planned_from_its_headers(place: Place) -> None:
    place.hub.add(REPO, files())
    result = place.run("plan", REPO, "--gpu", "h200:2", "--json")
    assert result.returncode == 0, result.stderr
    remote = json.loads(result.stdout)
    local = json.loads(place.run("plan", str(TINY), "--gpu", "h200:2", "--json").stdout)
    for key in ("memory", "layers", "decode", "prefill_tokens_per_s", "fits"):
        assert remote[key] == local[key]
    listed = place.run("pull", REPO, "--dry-run").stderr
    assert remote["model"] == REPO
    assert remote["download"]["bytes"] == sum(
        len(data) for path, data in files().items()
        if "/" not in path and Path(path).suffix in (".safetensors", ".json") or path.startswith(("README", "LICENSE"))
        or path == "encoding/encoding_dsv4.py"), listed
    assert not list(place.home.rglob("*.safetensors"))


def test_a_well_known_model_is_read_from_the_hub_when_it_answers(place: Place) -> None:
    place.hub.add("deepseek-ai/DeepSeek-V4-Flash", files())
    text = place.run("plan", "deepseek-ai/DeepSeek-V4-Flash", "--gpu", "h200:2").stdout
    assert "read from the hub" in text and "932 tensors" in text


def test_a_well_known_model_is_planned_from_its_schedule_when_it_does_not(place: Place) -> None:
    text = place.run("plan", "deepseek-ai/DeepSeek-V4-Flash", "--gpu", "h200:2", HF_ENDPOINT="http://127.0.0.1:9").stdout
    assert "published tensor schedule" in text and "69187 tensors" in text
    assert "127.0.0.1:9" in text.split("notes")[1]  # why the hub was not used


def test_a_damaged_repository_is_refused_even_if_well_known(place: Place) -> None:
    damaged = files()
    shard = next(name for name in damaged if name.endswith(".safetensors"))
    damaged[shard] = damaged[shard][:-1000]
    place.hub.add("deepseek-ai/DeepSeek-V4-Flash", damaged)
    result = place.run("plan", "deepseek-ai/DeepSeek-V4-Flash", "--gpu", "h200:2")
    assert result.returncode == 3 and shard in result.stderr


@pytest.mark.parametrize("env,part", [({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE"), ({}, "nobody/nothing")])
def test_an_unknown_model_says_why_it_could_not_be_read(place: Place, env: dict[str, str], part: str) -> None:
    result = place.run("plan", "nobody/nothing", "--gpu", "h200:2", **env)
    assert result.returncode in (1, 2) and result.stdout == ""
    assert part in result.stderr and "deepseek-ai/DeepSeek-V4-Flash" in result.stderr
