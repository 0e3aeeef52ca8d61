"""The command line: `run`, model names, flags, exit codes."""
from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import binary, http, model_folder, PATIENCE_S, Server


def nibble(*arguments: str, text: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([binary(), *arguments], input=text, capture_output=True, text=True, timeout=PATIENCE_S,
                          stdin=subprocess.DEVNULL if text is None else None, env={**os.environ, **env})


def test_version_and_help() -> None:
    version = (Path(__file__).resolve().parents[2] / "VERSION").read_text().strip()
    assert nibble("--version").stdout == f"nibble {version}\n"
    for command in ([], ["serve"], ["run"]):
        result = nibble(*command, "--help")
        assert result.returncode == 0 and "Usage" in result.stdout


def test_run_prints_the_answer_alone() -> None:
    result = nibble("run", str(model_folder()), "What is 12 plus 7?")
    assert result.returncode == 0
    assert "19" in result.stdout and result.stdout.count("\n") == 1
    assert result.stderr == ""


def test_run_finds_its_model_and_reads_standard_input() -> None:
    whole = nibble("run", str(model_folder()), "What is 12 plus 7?").stdout
    assert nibble("run", "What is 12 plus 7?").stdout == whole  # a lone word that is no model is text
    assert nibble("run", "tiny", "What is 12 plus 7?").stdout == whole
    assert nibble("run", text="What is 12 plus 7?\n").stdout == whole
    assert nibble("run", str(model_folder()), text="What is 12 plus 7?").stdout == whole


def test_run_takes_sampling_flags() -> None:
    def sample(seed: int) -> str:
        return nibble("run", "tiny", "Tell me something.", "--temperature", "1.5", "--seed", str(seed), "--max-tokens", "12").stdout

    assert sample(1) == sample(1)
    assert len({sample(seed) for seed in range(4)}) > 1


def test_run_cuts_to_the_most_likely() -> None:
    def answer(*flags: str) -> str:
        return nibble("run", "tiny", "Tell me something.", "--seed", "1", "--max-tokens", "12", *flags).stdout

    greedy = answer("--temperature", "0")
    for flags in (["--top-k", "1"], ["--min-p", "1"], ["--top-p", "0.000001"]):
        assert answer("--temperature", "2", *flags) == greedy
    assert answer("--temperature", "0", "--repetition-penalty", "5") != greedy


def test_thoughts_do_not_go_to_stdout() -> None:
    result = nibble("run", "tiny", "What is 12 plus 7?", "--thinking")
    assert result.returncode == 0
    assert result.stderr.strip() != ""
    assert result.stderr.strip() not in result.stdout


@pytest.mark.parametrize("arguments", [
    ["--bogus"], ["serve", "--bogus"], ["serve", "--port", "70000"], ["serve", "--kv-dtype", "fp4"], ["bogus"], [],
    ["run", "--temperature", "hot", "x"], ["serve", "no/such-model"], ["run", "no-such-model", "text"],
    ["run", "a", "b", "c"]])
def test_bad_usage_is_2(arguments: list[str]) -> None:
    result = nibble(*arguments)
    assert result.returncode == 2, result.stderr
    assert result.stderr and not result.stdout


def test_run_refuses_nothing_and_bad_utf8() -> None:
    assert nibble("run", text="").returncode == 2
    result = subprocess.run([binary(), "run"], input=b"a\xffb", capture_output=True, timeout=PATIENCE_S)
    assert result.returncode == 2 and b"byte 1" in result.stderr


def test_not_a_checkpoint_is_3(tmp_path: Path) -> None:
    result = nibble("run", str(tmp_path), "text")
    assert result.returncode == 3
    assert str(tmp_path) in result.stderr and "expected" in result.stderr


@pytest.mark.parametrize("flags", [
    ["--tp", "8"], ["--tensor-parallel-size", "8"], ["--gpu-memory-utilization", "0.9"], ["--enable-prefix-caching"],
    ["--dtype", "bfloat16"], ["--trust-remote-code"]])
def test_flags_from_elsewhere_are_accepted(flags: list[str]) -> None:
    result = nibble("run", "tiny", "What is 1 plus 1?", "--max-tokens", "2", *flags)
    assert result.returncode == 0
    assert flags[0] in result.stderr or "ignored" in result.stderr
    assert result.stderr.count("\n") == 1


def test_hub_cache(start: Callable[..., Server], tmp_path: Path) -> None:
    """OWNER/NAME as the hub's tools lay it out: snapshots of links to blobs."""
    repository = tmp_path / "hub" / "models--someone--a.model"
    snapshot = repository / "snapshots" / "0123abcd"
    blobs = repository / "blobs"
    (snapshot / "encoding").mkdir(parents=True)
    blobs.mkdir()
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123abcd")
    for number, file in enumerate(sorted(path for path in model_folder().rglob("*") if path.is_file())):
        relative = file.relative_to(model_folder())
        if len(relative.parts) > 2 or (len(relative.parts) == 2 and relative.parts[0] != "encoding"):
            continue
        (blobs / f"{number:x}").write_bytes(file.read_bytes())
        target = snapshot / relative
        target.symlink_to(os.path.relpath(blobs / f"{number:x}", target.parent))
    server = start(model="someone/a.model", env={"HF_HOME": str(tmp_path), "HF_HUB_CACHE": ""}).wait_ready()
    assert http.get(server.url + "/v1/models").json()["data"][0]["id"] == "someone/a.model"
    assert http.get(server.url + "/v1/models/someone%2Fa.model").status_code == 200
    body = {"model": "someone/a.model", "messages": [{"role": "user", "content": "What is 12 plus 7?"}]}
    assert "19" in server.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"]
    outside = nibble("run", "someone/../../x", "text", HF_HOME=str(tmp_path))
    assert outside.returncode == 2


def test_served_name_and_key(start: Callable[..., Server]) -> None:
    server = start("--served-model-name", "other", "--api-key", "secret").wait_ready()
    assert http.get(server.url + "/v1/models").status_code == 401
    assert http.get(server.url + "/metrics").status_code == 200
    client = server.client(api_key="secret")
    assert [one.id for one in client.models.list().data] == ["other"]
    assert client.chat.completions.create(model="other", messages=[{"role": "user", "content": "hi"}], max_tokens=2).choices
    assert 'model_name="other"' in http.get(server.url + "/metrics").text
