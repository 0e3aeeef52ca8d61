"""The bundled model in every format, served end to end: with `--activations exact` the same greedy text as the source
where the conversion is exact, and a stated, bounded divergence where it is not."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "server"))

from conftest import Server, binary  # noqa: E402

TINY = Path(__file__).resolve().parents[2] / "models" / "tiny"
PROMPTS = ["What is 12 plus 7?", "Tell me a short story about a fox.", "List three colours.",
           "What is 45 minus 18?", "Reply with JSON: a name and an age."]
EXACT = ["mxfp4", "nvfp4", "fp8", "bf16"]


def convert(source: Path, destination: Path, target: str) -> dict[str, Any]:
    result = subprocess.run([binary(), "convert", str(source), str(destination), "--to", target, "--json"],
                            capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def answers(model: Path) -> tuple[list[str], list[float]]:
    """Greedy answers, and the log-probability of each of their tokens in a row."""
    server = Server("--activations", "exact", "--kv-dtype", "fp32", model=str(model))
    try:
        server.wait_ready()
        client = server.client()
        name = client.models.list().data[0].id
        texts: list[str] = []
        logprobs: list[float] = []
        for prompt in PROMPTS:
            choice = client.chat.completions.create(model=name, temperature=0, max_tokens=48, logprobs=True, messages=[
                {"role": "user", "content": prompt}]).choices[0]
            texts.append(choice.message.content or "")
            assert choice.logprobs and choice.logprobs.content
            logprobs += [token.logprob for token in choice.logprobs.content]
        assert server.stop() == 0
        return texts, logprobs
    finally:
        server.close()


@pytest.fixture(scope="session")
def source() -> tuple[list[str], list[float]]:
    return answers(TINY)


@pytest.mark.parametrize("target", EXACT)
def test_exact_conversions_answer_alike(source: tuple[list[str], list[float]], tmp_path: Path, target: str) -> None:
    report = convert(TINY, tmp_path / "out", target)
    assert report["exact"], report["verdict"]
    texts, logprobs = answers(tmp_path / "out")
    assert texts == source[0]
    # Kernels of another format may add in another order; the weights are the same.
    assert max(abs(a - b) for a, b in zip(logprobs, source[1], strict=True)) < 1e-3


def test_int4_diverges_no_further_than_stated(source: tuple[list[str], list[float]], tmp_path: Path,
                                              capsys: pytest.CaptureFixture[str]) -> None:
    report = convert(TINY, tmp_path / "out", "int4")
    assert not report["exact"]
    texts, logprobs = answers(tmp_path / "out")
    same = sum(a == b for a, b in zip(texts, source[0], strict=True))
    mean = sum(map(abs, (a - b for a, b in zip(logprobs, source[1])))) / len(logprobs) if same == len(texts) else None
    with capsys.disabled():
        print(f"\nint4: {report['verdict']}; {same} of {len(texts)} greedy answers equal, their tokens' "
              f"log-probabilities {mean} apart on average")
    assert all(texts), "an answer is empty"
    assert report["relative_rms"] < 0.16  # INT4 g128 of Gaussian MXFP4 weights: 0.1145
    assert same >= 3
    assert mean is None or 0 < mean < 0.3


def test_a_converted_folder_has_no_contradictions(tmp_path: Path) -> None:
    for target in [*EXACT, "int4"]:
        convert(TINY, tmp_path / target, target)
        result = subprocess.run([binary(), "inspect", str(tmp_path / target), "--scan", "--json"], capture_output=True,
                                text=True, timeout=300)
        assert result.returncode == 0, result.stderr
        report = json.loads(result.stdout)
        assert report["verdict"] == "serve" and report["contradictions"] == [] and report["problems"] == []
        experts = [row for row in report["layers"] if row["kind"] == "routed experts"]
        names = {"mxfp4": "MXFP4", "nvfp4": "NVFP4", "int4": "INT4 g128", "fp8": "FP8 128x128 (F32)", "bf16": "BF16"}
        assert [row["format"] for row in experts] == [names[target]]
        if target == "nvfp4":
            assert experts[0]["scales"]["powers_of_two"]


