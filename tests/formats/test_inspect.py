"""`nibble inspect`: the table, --json, --scan, exit codes, and a checkpoint of the real one's size."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from flash_schedule import write_sparse

BINARY = os.environ["NIBBLE_BINARY"]
TINY = Path(__file__).resolve().parents[2] / "models" / "tiny"


def inspect(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BINARY, "inspect", *map(str, arguments)], capture_output=True, text=True, timeout=60)


def test_the_bundled_model_as_a_table() -> None:
    result = inspect()
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert "932 tensors in 2 shards" in lines[0] and lines[1].startswith("layer kind")
    assert any(line.split()[:3] == ["routed", "experts", "MXFP4"] and "routed_experts" in line for line in lines)
    assert lines[-1] == "verdict: serve"


def test_json_and_scan() -> None:
    plain = json.loads(inspect(TINY, "--json").stdout)
    assert plain["verdict"] == "serve" and plain["problems"] == [] and not plain["scanned"]
    assert all(row["scales"] is None for row in plain["layers"])
    assert sum(row["bytes"] for row in plain["layers"]) + plain["other"]["bytes"] == plain["bytes"]
    scanned = json.loads(inspect(TINY, "--json", "--scan").stdout)
    experts = next(row for row in scanned["layers"] if row["kind"] == "routed experts")
    assert experts["format"] == "MXFP4" and experts["scales"]["nan"] == 0
    assert experts["scales"]["max_exponent"] - experts["scales"]["min_exponent"] >= experts["scales"]["widest_span"] > 0
    assert any(row["scales"] is None for row in scanned["layers"])  # BF16 has none


def test_a_refused_checkpoint_exits_with_3(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(TINY, folder)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    with open(folder / "model-00002-of-00002.safetensors", "r+b") as file:
        file.truncate(1000)
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    result = inspect(folder)
    assert result.returncode == 3
    assert "problem: " in result.stdout and "model-00002-of-00002.safetensors" in result.stdout
    assert "expected tensors are missing" in result.stdout  # the second problem is said as well
    assert result.stdout.splitlines()[-1] == "verdict: refuse"
    assert inspect(folder, "--json").returncode == 3


def test_not_a_model() -> None:
    assert inspect("no-such-model").returncode == 2


def test_the_real_size_in_two_seconds_and_300_mb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    count, total = write_sparse(tmp_path)
    assert (count, total) == (69_187, 159_609_485_896)
    begin = time.monotonic()
    process = subprocess.Popen([BINARY, "inspect", tmp_path, "--json"], stdout=subprocess.PIPE, text=True)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    report = json.loads(output)
    assert process.returncode == 0 and report["verdict"] == "serve" and report["problems"] == []
    assert report["tensors"] == count and report["bytes"] == total
    rows = {(row["kind"], row["format"]): row for row in report["layers"]}
    experts = rows["routed experts", "MXFP4"]
    assert experts["count"] == 43 * 256 * 3 and experts["bytes"] == 43 * 256 * 13_369_344
    assert rows["MTP routed experts", "MXFP4"]["count"] == 256 * 3
    assert rows["indexer", "FP8 128x128 (E8M0)"]["count"] == 21
    cpu = usage.ru_utime + usage.ru_stime
    with capsys.disabled():
        print(f"\n{count} tensors: {wall:.2f} s, {cpu:.2f} s of one core, {usage.ru_maxrss / 1024:.0f} MiB")
    if "NIBBLE_TEST_SHORT" not in os.environ:  # the sanitizers cost both
        assert cpu < 2.0  # the machine may be shared with other tests; alone, this is the wall time
        assert usage.ru_maxrss * 1024 < 300_000_000
