"""The command line of `nibble audit`."""
from __future__ import annotations

import re
import subprocess
from pathlib import Path


from conftest import PATIENCE_S, SOURCE, Corpus, audit, binary


def test_the_bundled_model_is_clean() -> None:
    run = audit(str(SOURCE / "models" / "tiny"), "--json")
    assert run.exit == 0
    assert run.codes() == {"encoding/encoding_dsv4.py": ["encoder_data"], "": ["no_hashes"]}
    assert audit("tiny").exit == 0


def test_report_as_json(corpus: Corpus) -> None:
    report = audit(corpus["hostile/shard_cut_in_data"]["path"], "--json").report
    assert list(report) == ["model", "verdict", "files", "findings"]
    assert report["model"] == corpus["hostile/shard_cut_in_data"]["path"]
    names = [file["name"] for file in report["files"]]
    assert names == sorted(names) and "config.json" in names
    (damaged,) = [file for file in report["files"] if file["verdict"] == "truncated"]
    assert list(damaged) == ["name", "size", "verdict", "hash", "findings"]
    assert damaged["size"] == Path(report["model"], damaged["name"]).stat().st_size
    (finding,) = damaged["findings"]
    assert list(finding) == ["code", "severity", "message", "where"]
    assert "5 missing" in finding["message"]
    assert all(file["verdict"] == "ok" for file in report["files"] if file is not damaged)


def test_report_as_text(corpus: Corpus) -> None:
    run = audit(corpus["hostile/auto_map"]["path"])
    lines = run.stdout.splitlines()
    assert any(re.fullmatch(r"auto_map +\d+  modeling_x.py", line) for line in lines)
    assert any(re.fullmatch(r"ok +\d+  README.md", line) for line in lines)
    assert "    refusal auto_map: auto_map.AutoModel: asks the loader to run 'modeling_x.Model'" in lines
    assert lines[-1].endswith(": refused: 11 files, 2 refused, 0 with verified hashes")


def test_hashes_are_reported(corpus: Corpus) -> None:
    verified = audit(corpus["good/hub_cache"]["path"], "--json").report
    assert {file["hash"] for file in verified["files"]} == {"verified"}
    spoiled = audit(corpus["hostile/hub_blob_differs"]["path"], "--json").report
    assert sorted({file["hash"] for file in spoiled["files"]}) == ["mismatch", "verified"]


def test_large_files_can_be_left_unhashed(corpus: Corpus, tmp_path: Path) -> None:
    # A mebibyte over the limit, in a hub cache whose blob's name is not the hash of it.
    snapshot = tmp_path / "snapshots" / "rev"
    snapshot.mkdir(parents=True)
    (tmp_path / "blobs").mkdir()
    for name, data in {"config.json": b"{}", "tokenizer.json": b"{}"}.items():
        (snapshot / name).write_bytes(data)
    blob = tmp_path / "blobs" / ("a" * 64)
    bytes_ = 17 << 20
    header = b'{"x":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (bytes_, bytes_)
    with open(blob, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + bytes_)
    (snapshot / "model.safetensors").symlink_to(f"../../blobs/{blob.name}")
    whole = audit(str(snapshot), "--json")
    assert whole.exit == 3 and whole.codes() == {"model.safetensors": ["hash_mismatch"]}
    quick = audit(str(snapshot), "--json", "--no-hash")
    assert quick.exit == 0 and quick.codes() == {"": ["hash_skipped"]}


def test_allow_makes_refusals_notes(corpus: Corpus) -> None:
    path = corpus["hostile/auto_map"]["path"]
    assert audit(path, "--allow", "pickle").exit == 3
    run = audit(path, "--json", "--allow", "auto_map")
    assert run.exit == 0 and run.codes() == corpus["hostile/auto_map"]["codes"]
    assert audit(path, "--allow", "pickle,auto_map").exit == 0
    unknown = audit(path, "--allow", "auto_maps")
    assert unknown.exit == 2 and "auto_maps" in unknown.stderr and unknown.stdout == ""


def test_no_such_model(tmp_path: Path) -> None:
    assert audit(str(tmp_path / "nowhere")).exit == 2
    assert audit().exit == 2
    assert audit("tiny", "--bogus").exit == 2


def test_help_names_the_flags() -> None:
    text = subprocess.run([binary(), "audit", "--help"], capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
    documented = (SOURCE / "docs" / "audit.md").read_text()
    for flag in ("--json", "--no-hash", "--allow"):
        assert flag in text and flag in documented



def test_same_report_every_time(corpus: Corpus) -> None:
    path = corpus["good/official_v4_flash"]["path"]
    assert len({audit(path, "--json").stdout for _ in range(8)}) == 1
