"""Golden files of the backbone from the transformers library (DeepseekV4, fp32, eager attention, DynamicCache).

    python make_golden.py                    # configurations a, b, c -> tests/golden/{a,b,c}.safetensors, manifest.json
    python make_golden.py a --out /tmp/x     # one of them, elsewhere

Weights come from random_checkpoint.py (exact dequantised values). Prompts are drawn in short pieces; a piece in which
any router or index choice is decided by less than DRAW_GAP (a tie is 0),
is drawn again. Afterwards one shot, every prefix length of LENGTHS, uneven chunks and token-by-token runs are compared
with each other; the worst differences go into the manifest.

Tensors of CONFIG.safetensors, P = number of dumped positions, n = prompt length:
    promptI.ids I32 [n]; promptI.positions I32 [P]
    promptI.streams.layerL F32 [P, 4, D]         the residual streams after layer L
    promptI.logits F32 [P, V]
    promptI.router.layerL.experts I32 [P, k]     ascending; .weights F32 [P, k] in that order, scaling included
    promptI.index.layerL.entries I32 [P, topk]   CSA layers: chosen entries ascending, -1 after the last
    promptI.greedy.ids I32 [24]; .margins F32 [24]   the greedy continuation and its top-two logit margins
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import datetime
import json
import math
import pathlib
import sys

import numpy as np
import safetensors.numpy
import torch
import transformers
from transformers import DeepseekV4Config, DeepseekV4ForCausalLM, DynamicCache

import random_checkpoint as rc

KEEP_GAP = 2e-5  # what every decision of a committed prompt keeps from another choice
DRAW_GAP = 4e-5  # asked for while drawing, so that the one-shot run keeps KEEP_GAP
LENGTHS = (1, 3, 4, 5, 127, 128, 129, 255, 256, 257, 300, 700)
GREEDY = 24
REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True)
class PromptPlan:
    """A prompt's content: pieces of `piece` tokens from `alphabet` ids, or repetitions of one phrase."""

    seed: int
    length: int
    piece: int
    alphabet: int  # 0: the whole vocabulary
    phrase: int  # 0: free; else a phrase of that many tokens repeats, with one token in eight replaced
    positions: tuple[int, ...]


LONG_POSITIONS = (0, 2, 3, 4, 7, 126, 127, 128, 131, 254, 255, 256, 299, 511, 640, 699)
PROMPTS = (
    PromptPlan(seed=1, length=700, piece=10, alphabet=0, phrase=0, positions=LONG_POSITIONS),
    PromptPlan(seed=2, length=300, piece=6, alphabet=12, phrase=0, positions=(0, 1, 5, 63, 128, 200, 255, 299)),
    PromptPlan(seed=3, length=261, piece=24, alphabet=0, phrase=24, positions=(3, 23, 24, 47, 127, 191, 259, 260)),
)
# Prompts drawn from another seed because the MTP block's router decides within KEEP_GAP at a dumped position.
RESEED = {("c", 1): 12}


# ---------------------------------------------------------------- the model
def build_model(spec: rc.Spec) -> DeepseekV4ForCausalLM:
    """A transformers model holding the exact values of the random checkpoint, in fp32."""
    keys = dict(rc.config(dataclasses.replace(spec, storage="f32")))
    for key in ("architectures", "model_type", "torch_dtype", "topk_method"):
        keys.pop(key)
    config = DeepseekV4Config(**keys, attn_implementation="eager", experts_implementation="eager")
    model = DeepseekV4ForCausalLM(config).to(torch.float32).eval()
    weights = {t.name: torch.from_numpy(np.frombuffer(t.data, np.int64 if t.dtype == "I64" else np.float32).reshape(t.shape).copy())
               for t in rc.tensors(dataclasses.replace(spec, storage="f32", spelling="transformers"))}
    derived = {n for n in model.state_dict() if n.endswith("inv_freq")}
    result = model.load_state_dict(weights, strict=False)
    if set(result.missing_keys) - derived or result.unexpected_keys:
        raise RuntimeError(f"names differ: missing {result.missing_keys}, unexpected {result.unexpected_keys}")
    assert config._attn_implementation == "eager" and all(p.dtype == torch.float32 for p in model.parameters())
    return model


class Recorder:
    """Hooks that keep streams, router choices and index choices of one forward call, and the smallest gaps."""

    def __init__(self, model: DeepseekV4ForCausalLM, spec: rc.Spec):
        self.spec = spec
        self.clear()
        for number, layer in enumerate(model.model.layers):
            layer.register_forward_hook(self._streams(number))
            layer.mlp.gate.register_forward_hook(self._router(number, layer.mlp))
            if spec.compress_ratios[number] == 4:
                indexer = layer.self_attn.compressor.indexer
                indexer.scorer.register_forward_hook(self._scores(number))
                indexer.register_forward_hook(self._index(number))

    def clear(self) -> None:
        self.streams: dict[int, torch.Tensor] = {}
        self.experts: dict[int, torch.Tensor] = {}
        self.weights: dict[int, torch.Tensor] = {}
        self.entries: dict[int, torch.Tensor] = {}
        self.scores: dict[int, torch.Tensor] = {}
        self.router_gap = math.inf
        self.index_gap = math.inf
        self.position = 0  # of the call's first token, set by the caller

    def gap(self) -> float:
        return min(self.router_gap, self.index_gap)

    def _streams(self, number: int):
        def hook(_module, _args, out):
            self.streams[number] = out[0]
        return hook

    def _router(self, number: int, mlp):
        def hook(gate, _args, out):
            logits, weights, experts = out
            order = experts.argsort(-1)
            self.experts[number], self.weights[number] = experts.gather(1, order), weights.gather(1, order)
            if not mlp.is_hash:
                choice = (gate.score_fn(logits) + gate.e_score_correction_bias).sort(-1, descending=True).values
                k = self.spec.num_experts_per_tok
                self.router_gap = min(self.router_gap, (choice[:, k - 1] - choice[:, k]).min().item())
        return hook

    def _scores(self, number: int):
        def hook(_module, _args, out):
            self.scores[number] = out[0]
        return hook

    def _index(self, number: int):
        def hook(_module, _args, out):
            k = self.spec.index_topk
            chosen = torch.full((out.shape[1], k), self.spec.vocab_size + 10**6, dtype=torch.int64)
            chosen[:, :out.shape[2]] = torch.where(out[0] < 0, chosen[:, :out.shape[2]], out[0])
            chosen = chosen.sort(-1).values
            self.entries[number] = torch.where(chosen >= 10**6, -1, chosen)
            score = self.scores[number]
            visible = (self.position + torch.arange(len(score)) + 1) // 4
            busy = visible > k
            if busy.any():
                hidden = torch.arange(score.shape[1]) >= visible[:, None]
                top = score.masked_fill(hidden, -math.inf).sort(-1, descending=True).values
                self.index_gap = min(self.index_gap, (top[:, k - 1] - top[:, k])[busy].min().item())
        return hook


class Runner:
    """One model with its recorder; runs tokens on a cache."""

    def __init__(self, spec: rc.Spec):
        self.spec = spec
        self.model = build_model(spec)
        self.recorder = Recorder(self.model, spec)

    def new_cache(self) -> DynamicCache:
        return DynamicCache(config=self.model.config)

    def run(self, ids, cache: DynamicCache) -> torch.Tensor:
        """Logits [n, V] of `ids` appended to the cache; the recorder holds the rest."""
        self.recorder.clear()
        self.recorder.position = cache.get_seq_length()
        with torch.no_grad():
            out = self.model(input_ids=torch.as_tensor(ids)[None], past_key_values=cache, use_cache=True)
        return out.logits[0]


# ---------------------------------------------------------------- prompts
def draw_prompt(runner: Runner, plan: PromptPlan) -> tuple[list[int], int]:
    """Token ids whose choices all keep DRAW_GAP (the greedy continuation's too), and how many pieces were redrawn."""
    rng = np.random.default_rng([runner.spec.seed, plan.seed])
    vocab = runner.spec.vocab_size
    letters = rng.choice(np.arange(2, vocab), plan.alphabet, replace=False) if plan.alphabet else np.arange(2, vocab)
    phrase = rng.choice(letters, plan.phrase) if plan.phrase else None
    ids: list[int] = []
    cache, redrawn = runner.new_cache(), 0
    while len(ids) < plan.length:
        size = min(plan.piece, plan.length - len(ids))
        piece = rng.choice(letters, size)
        if phrase is not None:
            piece = np.where(rng.random(size) < 1 / 8, piece, phrase[:size])
        if not ids:
            piece[0] = 0  # BOS
        trial = copy.deepcopy(cache)
        logits = runner.run(piece, trial)
        good = runner.recorder.gap() >= DRAW_GAP
        if good and len(ids) + size == plan.length:
            good = greedy(runner, copy.deepcopy(trial), logits[-1])[2] >= DRAW_GAP
        if good:
            cache = trial
            ids += piece.tolist()
        else:
            redrawn += 1
    return ids, redrawn


def greedy(runner: Runner, cache: DynamicCache, logits: torch.Tensor) -> tuple[list[int], list[float], float]:
    """GREEDY tokens after a prompt, their top-two margins, and the smallest choice gap met on the way."""
    ids, margins, gap = [], [], math.inf
    for step in range(GREEDY):
        top = logits.topk(2)
        ids.append(top.indices[0].item())
        margins.append((top.values[0] - top.values[1]).item())
        if step + 1 < GREEDY:
            logits = runner.run(ids[-1:], cache)[-1]
            gap = min(gap, runner.recorder.gap())
    return ids, margins, gap


# ---------------------------------------------------------------- self checks
def check_consistency(runner: Runner, ids: list[int], shot: torch.Tensor, streams: dict[int, torch.Tensor]) -> dict[str, float]:
    """Worst difference of log-probabilities and streams between one shot and other ways to run the same tokens."""
    shot = shot.log_softmax(-1)
    worst = {"prefix_logprob": 0.0, "prefix_stream": 0.0, "chunked_logprob": 0.0, "token_by_token_logprob": 0.0}
    for n in (length for length in LENGTHS if length <= len(ids)):
        logits = runner.run(ids[:n], runner.new_cache()).log_softmax(-1)
        worst["prefix_logprob"] = max(worst["prefix_logprob"], (logits - shot[:n]).abs().max().item())
        for layer, value in runner.recorder.streams.items():
            worst["prefix_stream"] = max(worst["prefix_stream"], (value - streams[layer][:n]).abs().max().item())
    for name, sizes in (("chunked_logprob", (1, 7, 64, 128, 3)), ("token_by_token_logprob", (1,))):
        cache, at, turn = runner.new_cache(), 0, 0
        while at < len(ids):
            size = min(sizes[turn % len(sizes)], len(ids) - at)
            logits = runner.run(ids[at:at + size], cache).log_softmax(-1)
            worst[name] = max(worst[name], (logits - shot[at:at + size]).abs().max().item())
            at, turn = at + size, turn + 1
    return worst


def dump_prompt(runner: Runner, plan: PromptPlan, prefix: str) -> tuple[dict[str, np.ndarray], dict[str, object]]:
    ids, redrawn = draw_prompt(runner, plan)
    cache = runner.new_cache()
    logits = runner.run(ids, cache)
    rec = runner.recorder
    gaps = (rec.router_gap, rec.index_gap)
    at = torch.tensor(plan.positions)
    out = {"ids": np.array(ids, np.int32), "positions": np.array(plan.positions, np.int32), "logits": logits[at].numpy()}
    for layer, value in rec.streams.items():
        out[f"streams.layer{layer}"] = value[at].numpy()
        out[f"router.layer{layer}.experts"] = rec.experts[layer][at].to(torch.int32).numpy()
        out[f"router.layer{layer}.weights"] = rec.weights[layer][at].numpy()
    for layer, value in rec.entries.items():
        out[f"index.layer{layer}.entries"] = value[at].to(torch.int32).numpy()
    streams = dict(rec.streams)
    scale = max(v.abs().max().item() for v in streams.values())
    next_ids, margins, greedy_gap = greedy(runner, cache, logits[-1])
    out["greedy.ids"], out["greedy.margins"] = np.array(next_ids, np.int32), np.array(margins, np.float32)
    if min(*gaps, greedy_gap) < KEEP_GAP:
        raise RuntimeError(f"{prefix}: a choice is decided by {min(*gaps, greedy_gap):.3g}")
    checks = check_consistency(runner, ids, logits, streams)
    info = {"length": len(ids), "pieces_redrawn": redrawn, "router_gap": gaps[0], "index_gap": gaps[1],
            "greedy_gap": greedy_gap, "logit_range": [logits.min().item(), logits.max().item()], "stream_max": scale, **checks}
    return {f"{prefix}.{k}": np.ascontiguousarray(v) for k, v in out.items()}, info


def rounded(value: object) -> object:
    """Three significant digits; infinite (no choice was made) becomes null."""
    if isinstance(value, float):
        return float(f"{value:.3g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    return [rounded(v) for v in value] if isinstance(value, list) else value


def save(tensors: dict[str, np.ndarray], path: pathlib.Path) -> None:
    safetensors.numpy.save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, path)
    path.chmod(0o644)


def update_manifest(folder: pathlib.Path, name: str, entry: dict[str, object]) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text()) if path.exists() else {}
    manifest[name] = entry
    path.write_text(json.dumps({k: manifest[k] for k in sorted(manifest)}, indent=1, allow_nan=False) + "\n")


def versions() -> dict[str, str]:
    return {"python": sys.version.split()[0], "torch": torch.__version__, "transformers": transformers.__version__, "numpy": np.__version__}


def checkpoint_hashes(spec: rc.Spec) -> dict[str, dict[str, str]]:
    """SHA-256 of every file of the checkpoint in each form the C++ generator writes."""
    forms = {"published": spec, "bf16": dataclasses.replace(spec, storage="bf16"),
             "transformers_f32": dataclasses.replace(spec, storage="f32", spelling="transformers"),
             "published_without_mtp": dataclasses.replace(spec, mtp_layers=0)}
    return {form: rc.sha256(s) for form, s in forms.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="*", default=sorted(rc.GOLDEN))
    parser.add_argument("--out", type=pathlib.Path, default=REPOSITORY / "tests/golden")
    args = parser.parse_args()
    torch.set_num_threads(1)  # one order of summation on every machine, and no waiting for busy cores
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.config:
        spec = rc.GOLDEN[name]
        runner = Runner(spec)
        tensors: dict[str, np.ndarray] = {}
        prompts = []
        for i, plan in enumerate(PROMPTS):
            plan = dataclasses.replace(plan, seed=RESEED.get((name, i), plan.seed))
            values, info = dump_prompt(runner, plan, f"prompt{i}")
            tensors.update(values)
            prompts.append(rounded(info))
            print(f"{name} prompt{i}: {json.dumps(prompts[-1])}", flush=True)
        path = args.out / f"{name}.safetensors"
        save(tensors, path)
        print(f"{path}: {path.stat().st_size} bytes, {len(tensors)} tensors")
        update_manifest(args.out, name, {
            "file": path.name, "script": "tools/golden/make_golden.py", "date": datetime.date.today().isoformat(), "versions": versions(),
            "seed": spec.seed, "config": dict(rc.config(spec)), "prompts": prompts, "checkpoint_sha256": checkpoint_hashes(spec)})


if __name__ == "__main__":
    main()
