"""The command itself: usage, places that cannot be, damaged sources, a full disk, signals, memory."""
from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
import safetensors

SOURCE = Path(__file__).resolve().parents[2]
TINY = SOURCE / "models" / "tiny"
BINARY = os.environ.get("NIBBLE_BINARY", str(SOURCE / "build" / "nibble"))
PATIENCE_S = 300


def convert(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BINARY, "convert", *map(str, arguments)], capture_output=True, text=True,
                          timeout=PATIENCE_S, **options)  # type: ignore[call-overload]


def zeros(folder: Path, inner: int) -> Path:
    """The bundled model with experts `inner` wide, all weights zero: one sparse shard of any size, hardly on the disk."""
    config = json.loads((TINY / "config.json").read_text())
    old = config["moe_intermediate_size"]
    entries: dict[str, dict[str, object]] = {}
    at = 0
    for shard in sorted(TINY.glob("*.safetensors")):
        with shard.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            shape = entry["shape"]
            begin, end = entry["data_offsets"]
            width = (end - begin) // max(1, shape[0] * (shape[1] if len(shape) > 1 else 1))
            if "experts." in name:
                rows, cols = (256, inner) if ".w2." in name else (inner, 256)
                per = {"I8": 2, "F8_E4M3": 1}.get(entry["dtype"])
                if per:
                    shape = [rows, cols // per]
                elif "shared" in name:
                    shape = [-(-rows // 128), -(-cols // 128)]
                else:
                    shape = [rows, cols // 32]
            size = width
            for dim in shape:
                size *= dim
            entries[name] = {"dtype": entry["dtype"], "shape": shape, "data_offsets": [at, at + size]}
            at += size
    assert old != inner
    text = json.dumps(entries).encode()
    folder.mkdir()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)
    (folder / "config.json").write_text(json.dumps(config | {"moe_intermediate_size": inner}))
    return folder


def nothing_left(destination: Path) -> bool:
    return not destination.exists() and not destination.with_name(destination.name + ".partial").exists()


def test_help_and_usage(tmp_path: Path) -> None:
    text = convert("--help").stdout
    for word in ("SRC", "DST", "--to", "--json", "--threads", "--tensors", "mxfp4", "nvfp4", "int4", "fp8", "bf16"):
        assert word in text
    docs = (SOURCE / "docs" / "convert.md").read_text()
    usage = docs.split("\n    nibble convert ", 1)[1].split("\n", 1)[0]
    assert set(re.findall(r"--[a-z]+", usage)) == set(re.findall(r"--[a-z]+", text)) - {"--help"}
    assert usage.split("--to ")[1].split()[0].split("|") == ["mxfp4", "nvfp4", "int4", "fp8", "bf16"]
    for arguments in ([], [TINY], [TINY, tmp_path / "x"], [TINY, tmp_path / "x", "--to", "fp6"],
                      [tmp_path / "none", tmp_path / "x", "--to", "fp8"], [TINY, tmp_path / "x", "--to", "gguf"],
                      [TINY, tmp_path / "x", "--to", "fp8", "--threads", "0"]):
        result = convert(*arguments)
        assert result.returncode == 2 and result.stderr != "", arguments
    assert list(tmp_path.iterdir()) == []


def test_text_report(tmp_path: Path) -> None:
    result = convert("tiny", tmp_path / "out", "--to", "nvfp4", "--tensors")
    assert result.returncode == 0 and result.stderr == ""
    lines = result.stdout.splitlines()
    assert "layers.0.ffn.experts.0.w1: MXFP4 -> NVFP4: exact" in lines
    assert sum(" -> " in line for line in lines) == 288
    assert lines[-1].startswith("verdict: exact: all 9437184 values of 288 matrices")
    result = convert(tmp_path / "out", tmp_path / "int4", "--to", "int4")
    assert result.stdout.splitlines()[-1].startswith("verdict: 73728 of 73728 blocks inexact, in 288 of 288 matrices")


def test_places_that_cannot_be(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(TINY, source)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    before = sorted(source.rglob("*"))
    for destination, words in ((source / "inner", "apart from the source"), (source, "apart from the source"),
                               (tmp_path, "apart from the source"), (tmp_path / "full", "an empty folder or none"),
                               (tmp_path / "no" / "where", "found none at")):
        result = convert(source, destination, "--to", "fp8")
        assert result.returncode == 2 and words in result.stderr, result.stderr
    assert sorted(source.rglob("*")) == before
    (tmp_path / "empty").mkdir()
    assert convert(source, tmp_path / "empty", "--to", "fp8").returncode == 0


def hub_cache(root: Path) -> Path:
    """The bundled model as the hub cache holds it: links into blobs, in encoding/ too. Returns the snapshot."""
    repository = root / "models--a--b"
    snapshot = repository / "snapshots" / "0123abc"
    (snapshot / "encoding").mkdir(parents=True)
    (repository / "blobs").mkdir()
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123abc")
    for file in [f for f in TINY.iterdir() if f.is_file()] + list((TINY / "encoding").glob("*.py")):
        name = file.relative_to(TINY)
        shutil.copy(file, repository / "blobs" / file.name)
        (snapshot / name).symlink_to(Path(*[".."] * (1 + len(name.parts))) / "blobs" / file.name)
    return snapshot


def test_a_source_in_the_hub_cache(tmp_path: Path) -> None:
    snapshot = hub_cache(tmp_path / "hub")
    result = convert("a/b", tmp_path / "out", "--to", "mxfp4", env={**os.environ, "HF_HUB_CACHE": str(tmp_path / "hub")})
    assert result.returncode == 0, result.stderr
    for name in ("tokenizer.json", "encoding/encoding_dsv4.py"):
        made = tmp_path / "out" / name
        assert made.read_bytes() == (TINY / name).read_bytes() and not made.is_symlink()
    (tmp_path / "secret.json").write_text("{}")
    for name in ("extra.json", "encoding/extra.py"):  # links that leave the repository are not followed
        (snapshot / name).symlink_to(tmp_path / "secret.json")
        result = convert(snapshot, tmp_path / "out-2", "--to", "mxfp4")
        assert result.returncode == 3 and Path(name).name in result.stderr, result.stderr
        assert nothing_left(tmp_path / "out-2")
        (snapshot / name).unlink()


def test_what_is_not_data_is_left_out(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(TINY, source)
    for name in ("modeling.py", "pytorch_model.bin", ".gitattributes", "LICENSE", "chat_template.jinja"):
        (source / name).write_text(name)
    (source / "inference").mkdir()
    (source / "hf_quant_config.json").write_text("{}")
    report = json.loads(convert(source, tmp_path / "out", "--to", "int4", "--json").stdout)
    assert report["left_out"] == [".gitattributes", "encoding/tests (a folder)", "inference (a folder)", "modeling.py",
                                  "pytorch_model.bin"]
    made = {str(f.relative_to(tmp_path / "out")) for f in (tmp_path / "out").rglob("*") if f.is_file()}
    assert made == set(report["files"]) | {f.name for f in TINY.glob("*.safetensors")}
    assert {"LICENSE", "chat_template.jinja"} < made and "hf_quant_config.json" not in made


def test_damaged_source(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(TINY, source)
    shard = source / "model-00002-of-00002.safetensors"
    os.truncate(shard, shard.stat().st_size - 1000)
    result = convert(source, tmp_path / "out", "--to", "nvfp4")
    assert result.returncode == 3 and "truncated" in result.stderr and shard.name in result.stderr
    assert nothing_left(tmp_path / "out")
    shutil.copy(TINY / shard.name, shard)
    with shard.open("r+b") as file:  # an E8M0 NaN in the second half of the work
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        file.seek(8 + length + header["layers.5.ffn.experts.9.w3.scale"]["data_offsets"][0])
        file.write(b"\xff")
    result = convert(source, tmp_path / "out", "--to", "nvfp4")
    assert result.returncode == 3
    assert "layers.5.ffn.experts.9.w3.scale" in result.stderr and "E8M0 NaN" in result.stderr
    assert nothing_left(tmp_path / "out")


def test_too_small_a_disk_is_seen_before_the_first_byte(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    per_row = (16 * 6 + 16) * 3 * 256 // 2  # bytes of MXFP4 codes a row of `inner`; bf16 has four times that
    inner = (free // per_row // 3 // 128 + 1) * 128
    try:
        source = zeros(tmp_path / "source", inner)
    except OSError as error:
        pytest.skip(f"no sparse file of that size here: {error}")
    result = convert(source, tmp_path / "out", "--to", "bf16")
    assert result.returncode == 1 and "are missing" in result.stderr, result.stderr
    assert nothing_left(tmp_path / "out")


def test_a_disk_that_fills_up(tmp_path: Path) -> None:
    for limit in (4096, 5_000_000):  # a shard cannot be made; nor the second one, nor anything behind it
        result = convert(TINY, tmp_path / "out", "--to", "fp8",
                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        assert result.returncode == 1, result.stderr
        assert "File too large" in result.stderr and "model-0000" in result.stderr
        assert nothing_left(tmp_path / "out")


def started(source: Path, destination: Path) -> subprocess.Popen[str]:
    """A conversion in the middle of its only shard."""
    process = subprocess.Popen([BINARY, "convert", str(source), str(destination), "--to", "bf16", "--threads", "1"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    shard = destination.with_name(destination.name + ".partial") / "model.safetensors"
    end = time.monotonic() + PATIENCE_S
    while not shard.exists():
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.001)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    process = started(zeros(tmp_path / "source", 4096), tmp_path / "out")
    process.send_signal(number)
    output, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1 and "interrupted" in errors and output == "", errors
    assert nothing_left(tmp_path / "out")


def test_killed_leaves_nothing_that_passes(tmp_path: Path) -> None:
    source = zeros(tmp_path / "source", 4096)
    process = started(source, tmp_path / "out")
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    partial = tmp_path / "out.partial"
    assert not (tmp_path / "out").exists() and partial.exists()
    with pytest.raises(safetensors.SafetensorError), (partial / "model.safetensors").open("rb") as file:
        safetensors.deserialize(file.read(1 << 20))
    shutil.copy(source / "config.json", partial)
    assert subprocess.run([BINARY, "inspect", str(partial)], capture_output=True, timeout=PATIENCE_S).returncode == 3
    result = convert(source, tmp_path / "out", "--to", "nvfp4")
    assert result.returncode == 1 and "out.partial" in result.stderr and "delete it" in result.stderr


def test_memory_is_bounded_by_the_jobs(tmp_path: Path) -> None:
    """A shard of 160 MB, two of 11 MB: the difference in memory is that of the jobs, not of the shards."""
    def peak(source: Path, destination: Path) -> tuple[int, int]:
        program = ("import resource, subprocess, sys\n"
                   "done = subprocess.run(sys.argv[1:], capture_output=True, text=True)\n"
                   "assert done.returncode == 0, done.stderr\n"
                   "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)\n"
                   "print(done.stdout)\n")
        out = subprocess.run([sys.executable, "-c", program, BINARY, "convert", str(source), str(destination), "--to",
                              "nvfp4", "--threads", "2", "--json"], capture_output=True, text=True, timeout=PATIENCE_S)
        assert out.returncode == 0, out.stderr
        used, report = out.stdout.split("\n", 1)
        return int(used), json.loads(report)["memory_bytes"]

    small, small_jobs = peak(TINY, tmp_path / "small")
    source = zeros(tmp_path / "source", 4096)
    large, large_jobs = peak(source, tmp_path / "large")
    assert (tmp_path / "large" / "model.safetensors").stat().st_size > 160_000_000
    assert large_jobs < 30_000_000
    if "NIBBLE_TEST_SHORT" in os.environ:  # the sanitizers keep what was freed
        return
    assert large - small < large_jobs - small_jobs + 16_000_000, (small, small_jobs, large, large_jobs)


def test_progress_is_plain_lines_elsewhere_than_on_a_terminal(tmp_path: Path) -> None:
    result = convert(zeros(tmp_path / "source", 2048), tmp_path / "out", "--to", "int4", "--threads", "1")
    assert result.returncode == 0
    assert result.stderr == "" or all(line.startswith("converting: ") for line in result.stderr.splitlines())
