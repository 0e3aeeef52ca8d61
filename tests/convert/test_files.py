"""Every format, read back by the independent reader of reference.py and held against the report, to the last bit."""
from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reference

SOURCE = Path(__file__).resolve().parents[2]
TINY = SOURCE / "models" / "tiny"
BINARY = os.environ.get("NIBBLE_BINARY", str(SOURCE / "build" / "nibble"))
TARGETS = ["mxfp4", "nvfp4", "int4", "fp8", "bf16"]


def convert(source: Path, destination: Path, target: str) -> dict[str, Any]:
    result = subprocess.run([BINARY, "convert", str(source), str(destination), "--to", target, "--json"],
                            capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, dict[str, Any]]]:
    """The bundled model in every format."""
    root = tmp_path_factory.mktemp("converted")
    return {target: (root / target, convert(TINY, root / target, target)) for target in TARGETS}


def check_against_report(source: Path, made: Path, target: str, report: dict[str, Any]) -> None:
    before, after = reference.read_folder(source), reference.read_folder(made)
    assert report["bytes"] == sum(len(t.data) for t in after.values())
    told = {m["name"]: m for m in report["matrices"]}
    assert len(told) == len(report["matrices"])
    total = reference.Error(0, 0, 0, 0, 0.0, 0.0, 0.0, [])
    for name, m in told.items():
        matrix = reference.matrix(after, name)
        assert matrix.format == target, name
        error = reference.compare(reference.matrix(before, name), matrix)
        found = {key: m[key] for key in ("values", "inexact_values", "blocks", "inexact_blocks", "worst", "worst_at")}
        assert found == {key: getattr(error, key) for key in found}, name
        assert m["relative_rms"] == error.relative_rms(), name
        assert m["exact"] == (error.inexact_values == 0)
        for key in ("values", "inexact_values", "blocks", "inexact_blocks", "squares", "norm"):
            setattr(total, key, getattr(total, key) + getattr(error, key))
        total.worst = max(total.worst, error.worst)
    for key in ("values", "inexact_values", "blocks", "inexact_blocks", "worst"):
        assert report[key] == getattr(total, key), key
    assert report["relative_rms"] == total.relative_rms()
    # Everything else is what it was: the same bytes, or a scale in a wider type.
    assert set(reference.stems(before)) == set(reference.stems(after))
    for name, tensor in after.items():
        if any(name.startswith(stem + ".") for stem in (name.rsplit(".", 1)[0],) if stem in told):
            continue
        old = before.get(name) or before.get(name.replace(".weight_scale", ".scale")) or before[
            name.replace(".scale", ".weight_scale")]
        if old.dtype == tensor.dtype:
            assert (old.shape, old.data) == (tensor.shape, tensor.data), name
        else:
            assert np.array_equal(reference.floats(old), reference.floats(tensor)), name


@pytest.mark.parametrize("target", TARGETS)
def test_the_report_is_true(folders: dict[str, tuple[Path, dict[str, Any]]], target: str) -> None:
    made, report = folders[target]
    assert report["exact"] == (target != "int4"), report["verdict"]
    assert report["verdict"].startswith("exact: all ") == report["exact"]
    check_against_report(TINY, made, target, report)


@pytest.mark.parametrize("name", ["layers.2.ffn.experts.3.w1.weight_scale", "layers.2.ffn.experts.3.w2.weight",
                                  "layers.1.attn.wq_a.weight", "mtp.0.ffn.experts.0.w1.scale"])
def test_one_changed_bit_would_be_noticed(folders: dict[str, tuple[Path, dict[str, Any]]], tmp_path: Path,
                                          name: str) -> None:
    shutil.copytree(folders["nvfp4"][0], tmp_path / "out")
    shard = tmp_path / "out" / json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())["weight_map"][name]
    content = bytearray(shard.read_bytes())
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    content[8 + length + header[name]["data_offsets"][0]] ^= 1
    shard.write_bytes(content)
    with pytest.raises(AssertionError):
        check_against_report(TINY, tmp_path / "out", "nvfp4", folders["nvfp4"][1])


@pytest.mark.parametrize("source", ["int4", "bf16"])
@pytest.mark.parametrize("target", ["mxfp4", "nvfp4", "fp8"])
def test_lossy_conversions_follow_the_rules(folders: dict[str, tuple[Path, dict[str, Any]]], tmp_path: Path,
                                            source: str, target: str) -> None:
    """Every value is what the format's rule makes of it, by a second encoder."""
    report = convert(folders[source][0], tmp_path / "out", target)
    check_against_report(folders[source][0], tmp_path / "out", target, report)
    before, after = reference.read_folder(folders[source][0]), reference.read_folder(tmp_path / "out")
    for name in [m["name"] for m in report["matrices"]][::7]:
        values = reference.matrix(before, name).values
        shared = [name]
        if name.endswith((".w1", ".w3")):
            shared = [name[:-1] + "1", name[:-1] + "3"]
        amax = max(float(np.abs(reference.matrix(before, n).values).max()) for n in shared)
        expected = reference.encode(target, values, amax)
        assert np.array_equal(reference.matrix(after, name).values, expected), name
    if source == "int4":
        assert not report["exact"]
        # Figures for Gaussian weights, doubled: 11.5 %, 9.5 %, 2.7 %.
        assert report["relative_rms"] < {"mxfp4": 0.2, "nvfp4": 0.2, "fp8": 0.055}[target]


def test_int4_follows_the_rule(folders: dict[str, tuple[Path, dict[str, Any]]]) -> None:
    made, report = folders["int4"]
    before, after = reference.read_folder(TINY), reference.read_folder(made)
    for name in [m["name"] for m in report["matrices"]][::7]:
        expected = reference.encode("int4", reference.matrix(before, name).values, 0.0)
        assert np.array_equal(reference.matrix(after, name).values, expected), name
    assert 0.05 < report["relative_rms"] < 0.16


@pytest.mark.parametrize("target", TARGETS)
def test_files_are_what_readers_expect(folders: dict[str, tuple[Path, dict[str, Any]]], target: str) -> None:
    sizes = {"I64": 8, "F32": 4, "I32": 4, "BF16": 2, "F8_E4M3": 1, "F8_E8M0": 1, "I8": 1, "U8": 1}
    made, report = folders[target]
    shards = sorted(made.glob("*.safetensors"))
    assert [s.name for s in shards] == [s.name for s in sorted(TINY.glob("*.safetensors"))]
    for shard in shards:
        with shard.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
        assert length % 8 == 0 and header.pop("__metadata__") == {"format": "pt"}
        ends = 0
        for entry in header.values():  # in the order of the file
            begin, end = entry["data_offsets"]
            assert begin == ends and begin % sizes[entry["dtype"]] == 0
            ends = end
        assert shard.stat().st_size == 8 + length + ends
    index = json.loads((made / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == report["bytes"]
    assert not list(made.parent.glob("*.partial"))


def config(folders: dict[str, tuple[Path, dict[str, Any]]], target: str) -> dict[str, Any]:
    made = json.loads((folders[target][0] / "config.json").read_text())
    source = json.loads((TINY / "config.json").read_text())
    for key in ("quantization_config", "expert_dtype"):
        source.pop(key)
    assert {key: value for key, value in made.items() if key in source} == source
    return {key: value for key, value in made.items() if key not in source}


def test_metadata_is_what_the_publishers_write(folders: dict[str, tuple[Path, dict[str, Any]]]) -> None:
    deepseek = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}
    assert config(folders, "mxfp4") == {"expert_dtype": "fp4",
                                        "quantization_config": deepseek | {"scale_fmt": "ue8m0"}}
    assert config(folders, "fp8") == {"expert_dtype": "fp8", "quantization_config": deepseek}  # F32 scales
    assert config(folders, "bf16") == {}

    nvfp4 = config(folders, "nvfp4")
    four_bits = {"num_bits": 4, "type": "float", "group_size": 16, "dynamic": False}
    layers = {f"layers.{n}.ffn.experts": {"quant_algo": "NVFP4", "group_size": 16} for n in range(6)}
    ignored = ["*.attn.*", "*.ffn.shared_experts.*", "head", "mtp.*"]
    producer = {"name": "modelopt", "version": "dsv4-nvfp4-experts"}
    assert nvfp4 == {"expert_dtype": "fp4", "quantization_config": deepseek | {
        "scale_fmt": "ue8m0", "quant_algo": "MIXED_PRECISION", "moe_quant_algo": "NVFP4", "group_size": 16,
        "kv_cache_quant_algo": None, "producer": producer, "quantized_layers": layers, "ignore": ignored,
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": four_bits, "input_activations": four_bits}}}}
    hf = json.loads((folders["nvfp4"][0] / "hf_quant_config.json").read_text())
    assert hf == {"producer": producer, "quantization": {
        "quant_algo": "MIXED_PRECISION", "moe_quant_algo": "NVFP4", "kv_cache_quant_algo": None, "group_size": 16,
        "quantized_layers": layers, "exclude_modules": ignored}}
    for target in TARGETS:
        assert (folders[target][0] / "hf_quant_config.json").exists() == (target == "nvfp4")


def test_compressed_tensors_patterns_name_the_right_matrices(
        folders: dict[str, tuple[Path, dict[str, Any]]]) -> None:
    quantization = config(folders, "int4")["quantization_config"]
    assert quantization["quant_method"] == "compressed-tensors" and quantization["scale_fmt"] == "ue8m0"
    groups = quantization["config_groups"]
    assert groups["group_1"]["weights"] | {"actorder": None} == {
        "num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True, "dynamic": False,
        "actorder": None}
    tensors = reference.read_folder(folders["int4"][0])

    def matches(patterns: list[str], stem: str) -> bool:
        return any(re.match(p.removeprefix("re:"), stem) for p in patterns)

    for stem in reference.stems(tensors):
        if stem.startswith("mtp."):
            assert matches(quantization["ignore"], stem), stem
            continue
        found = reference.matrix(tensors, stem).format
        assert matches(groups["group_0"]["targets"], stem) == (found == "fp8"), stem
        assert matches(groups["group_1"]["targets"], stem) == (found == "int4"), stem
        assert matches(quantization["ignore"], stem) == (found == "bf16"), stem
