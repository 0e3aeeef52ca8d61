"""`nibble plan`: the JSON of the binary, its exit codes, and what it says without any files."""
from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from conftest import binary, model_folder, PATIENCE_S

FIELDS = ["model", "gpu", "context", "concurrency", "download", "memory", "fits", "remedies", "layers", "decode",
          "prefill_tokens_per_s", "basis"]
PARTS = ["weights", "replicated", "kv", "state", "snapshots", "workspace", "graphs", "draft"]


def nibble(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([binary(), "plan", *arguments], capture_output=True, text=True, timeout=PATIENCE_S,
                          stdin=subprocess.DEVNULL, env={**os.environ, "HF_HUB_OFFLINE": "1", **env})


def plan(*arguments: str, **env: str) -> dict[str, Any]:
    result = nibble(*arguments, "--json", **env)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def headers_bytes(folder: Path) -> int:
    """Bytes of all tensors, read from the shards by other code."""
    total = 0
    for shard in folder.glob("*.safetensors"):
        with shard.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
        total += sum(entry["data_offsets"][1] - entry["data_offsets"][0]
                     for name, entry in header.items() if name != "__metadata__")
    return total


def test_json_has_exactly_the_promised_fields() -> None:
    found = plan("tiny", "--gpu", "cpu", "--context", "2048", "--concurrency", "3")
    assert list(found) == FIELDS
    assert list(found["gpu"]) == ["kind", "count"] and found["gpu"] == {"kind": "cpu", "count": 1}
    assert list(found["download"]) == ["bytes", "free"]
    assert list(found["memory"]) == [*PARTS, "total", "capacity", "host_snapshots"]
    assert (found["model"], found["context"], found["concurrency"]) == ("tiny", 2048, 3)
    assert found["basis"] == "roofline" and found["fits"] is True and found["remedies"] == []
    for layer in found["layers"]:
        assert list(layer) == ["kind", "count", "format", "bytes", "kernel", "unit"]
        assert layer["kernel"].startswith("cpu.") and layer["unit"] in ("vector", "scalar")
    assert [row["batch"] for row in found["decode"]] == [1, 4, 16, 64, 256]
    for row in found["decode"]:
        assert list(row) == ["batch", "ms", "tokens_per_s", "floor_ms", "bytes"]
        assert row["ms"] > row["floor_ms"] > 0 and isinstance(row["bytes"], int)
        assert row["tokens_per_s"] == pytest.approx(row["batch"] / row["ms"] * 1e3)
    assert found["prefill_tokens_per_s"] > 0


def test_bytes_are_integers_that_add_up() -> None:
    for gpu in ("cpu", "h200", "h200:2"):
        found = plan("tiny", "--gpu", gpu)
        memory = found["memory"]
        assert all(isinstance(value, int) for value in memory.values())
        assert memory["total"] == sum(memory[part] for part in PARTS)
        assert found["fits"] == (memory["total"] <= memory["capacity"])
        assert sum(layer["bytes"] for layer in found["layers"]) == found["download"]["bytes"]
        assert found["download"]["bytes"] == headers_bytes(model_folder())


def test_a_folder_and_its_default_name_are_the_same_plan() -> None:
    by_name = plan("--gpu", "h200:2")
    by_folder = plan(str(model_folder()), "--gpu", "h200:2")
    for found in (by_name, by_folder):
        found.pop("download")  # the disk may fill meanwhile
    assert by_name == by_folder
    assert {layer["kernel"] for layer in by_name["layers"]} == {"none yet"}


def test_a_well_known_model_needs_no_files(tmp_path: Path) -> None:
    arguments = ("deepseek-ai/DeepSeek-V4-Flash", "--gpu", "h200:2")
    found = plan(*arguments, HF_HOME=str(tmp_path / "not" / "yet"))
    assert found["download"]["bytes"] == 159_609_485_896
    assert found["download"]["free"] == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.05)
    assert found["fits"] is True
    assert [round(row["bytes"] / 1e9) for row in found["decode"]] == [11, 21, 54, 123, 158]
    text = nibble(*arguments).stdout
    assert "published tensor schedule" in text and "none yet" in text and "fits" in text


def test_what_does_not_fit_says_what_would_and_still_exits_0() -> None:
    found = plan("deepseek-ai/DeepSeek-V4-Flash", "--gpu", "h200")
    assert found["fits"] is False
    assert "--gpu h200:2" in found["remedies"]
    assert found["memory"]["total"] > found["memory"]["capacity"]
    assert plan("deepseek-ai/DeepSeek-V4-Flash", "--gpu", "h200:2")["fits"] is True


def test_explain_shows_the_arithmetic() -> None:
    text = nibble("deepseek-ai/DeepSeek-V4-Flash", "--gpu", "h200:2", "--explain").stdout
    for part in ("weights 11217.6 MB", "4500 GB/s", "147169738752 bytes x 8/16", "whole on every GPU"):
        assert part in text


def test_the_hub_cache_is_looked_at_first(tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "models--deepseek-ai--DeepSeek-V4-Flash"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc")
    shutil.copytree(model_folder(), repository / "snapshots" / "abc")
    found = plan("deepseek-ai/DeepSeek-V4-Flash", "--gpu", "h200", HF_HOME=str(tmp_path))
    assert found["download"]["bytes"] == headers_bytes(model_folder())


def test_config_json_alone_is_enough(tmp_path: Path) -> None:
    shutil.copy(model_folder() / "config.json", tmp_path)
    alone = plan(str(tmp_path), "--gpu", "h200:2")
    whole = plan("tiny", "--gpu", "h200:2")
    for key in ("memory", "layers", "decode", "fits"):
        assert alone[key] == whole[key]
    assert "formulas" in nibble(str(tmp_path), "--gpu", "h200:2").stdout
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    assert nibble(str(tmp_path), "--gpu", "h200:2").returncode == 3


@pytest.mark.parametrize("arguments,part", [
    (["tiny"], "--gpu is required"),
    (["tiny", "--gpu", "h300"], "h200, h100, b200, rtx-pro-6000, rtx-5090, dgx-spark, cpu"),
    (["tiny", "--gpu", "h200:9"], "1 to 8"),
    (["tiny", "--gpu", "h200:0"], "1 to 8"),
    (["tiny", "--gpu", "cpu:2"], "cpu:1"),
    (["tiny", "--gpu", "h200", "--context", "8193"], "at most 8192"),
    (["tiny", "--gpu", "h200", "--context", "0"], "--context"),
    (["tiny", "--gpu", "h200", "--concurrency", "0"], "--concurrency"),
    (["no-such-model", "--gpu", "h200"], "deepseek-ai/DeepSeek-V4-Flash"),
])
def test_bad_usage_exits_2_and_says_what_is_allowed(arguments: list[str], part: str) -> None:
    result = nibble(*arguments)
    assert result.returncode == 2 and result.stdout == ""
    assert part in result.stderr


def test_a_damaged_checkpoint_is_refused_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model_folder(), folder)
    shard = sorted(folder.glob("*.safetensors"))[0]
    os.truncate(shard, shard.stat().st_size - 1000)
    result = nibble(str(folder), "--gpu", "h200")
    assert result.returncode == 3 and shard.name in result.stderr
