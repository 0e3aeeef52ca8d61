"""Golden files from the second implementation (port/): the MTP block, and the release's own rounding.

    python make_port_golden.py               # after make_golden.py -> tests/golden/{a,b,c}_mtp.safetensors, a_release.safetensors
    python make_port_golden.py a             # one configuration

First the port's backbone is compared with the transformers goldens (exact arithmetic). Then, with P positions a prompt:

CONFIG_mtp.safetensors, exact arithmetic, for the prompts and positions of CONFIG.safetensors:
    promptI.mtp1.next_ids I32 [P]      the token after each position (after the last one: greedy.ids[0])
    promptI.mtp1.streams F32 [P, 4, D], .logits F32 [P, V], .experts I32 [P, k] ascending, .weights F32 [P, k]
        the block on the target's streams and next_ids; logits predict the token after next_ids
    promptI.mtp2.*                     the same names one position further: the block fed with its own mtp1.streams and
        mtp2.next_ids = argmax of mtp1.logits, on a window whose rows up to the dumped position come from the target's streams

a_release.safetensors, the rounding listed in port/model.py, 300 random tokens, P = 12. Coarse grids turn the last bit of a sum into a whole
step and 6 layers turn that into noise (manifest: "model against fp64 arithmetic"), so each part is also run on its own, from streams that both
sides regenerate: `name` [300, 4, D], BF16, normal(name, std 1) of random_checkpoint.py, at positions 0..299 with the ids of prompt0.
    layerL.after_attention, layerL.streams F32 [P, 4, D]     L in 0, 2, 3, 4; input release.layerL.streams
    layerL.experts I32 [P, k] ascending, layerL.weights F32 [P, k]
    layerL.entries I32 [300, topk]                           L in 2, 4; every position
    mtp.{after_attention,streams,experts,weights,logits}     input release.mtp.streams, next_ids[t] = ids[t] (no shift)
    head.logits F32 [P, V]                                   hc_head, norm, lm_head of release.head.streams
    prompt0.{ids,positions,logits,streams.layerL,router.layerL.*,index.layerL.entries,mtp1.*,mtp2.*}    the whole model, as in the files
        above; next_ids of the last position = argmax of its logits
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import pathlib

import numpy as np
import safetensors.numpy
import torch

import random_checkpoint as rc
from make_golden import REPOSITORY, rounded, save, update_manifest, versions
from port import quantisers
from port.model import Output, Port, State

RELEASE_CONFIG = "a"
RELEASE_GAP = 5e-4  # asked of the parts at dumped positions
RELEASE_LENGTH = 300
RELEASE_LAYERS = (0, 2, 3, 4)  # sliding + hash, CSA + hash, HCA + scores, CSA + scores
RELEASE_POSITIONS = (0, 2, 3, 4, 63, 127, 128, 129, 200, 255, 256, 299)
KEEP_GAP = 2e-5


def make_port(spec: rc.Spec, **options) -> Port:
    return Port(dict(rc.config(spec)), {name: torch.from_numpy(v) for name, v in rc.values(spec).items()}, **options)


def int32(x) -> np.ndarray:
    return np.asarray(x).astype(np.int32)


def margin(logits: torch.Tensor) -> float:
    top = logits.topk(2, -1).values
    return (top[:, 0] - top[:, 1]).min().item()


def dump_choices(out: Output, at: torch.Tensor, prefix: str) -> dict[str, np.ndarray]:
    tensors = {}
    for layer, (experts, weights) in enumerate(zip(out.experts, out.weights)):
        tensors[f"{prefix}.router.layer{layer}.experts"] = int32(experts[at])
        tensors[f"{prefix}.router.layer{layer}.weights"] = weights[at].numpy()
    for layer, entries in out.entries.items():
        tensors[f"{prefix}.index.layer{layer}.entries"] = int32(entries[at])
    return tensors


def run_drafts(port: Port, state: State, streams: torch.Tensor, ids: list[int], last_next: int, at: list[int]):
    """Depth 1 over the whole prompt, depth 2 from each dumped position. Returns (next ids [P], Output rows [P]) twice."""
    following = ids[1:] + [last_next]
    first = port.run_mtp(streams, following, state, 0)
    drafted = first.logits.argmax(-1)
    second = [port.run_mtp(first.streams[0][p:p + 1], drafted[p:p + 1], state.copy(), p + 1) for p in at]
    return (torch.tensor(following)[at], first), (drafted[at], second)


def dump_drafts(depth1, depth2, at: list[int], prefix: str) -> dict[str, np.ndarray]:
    (next1, first), (next2, second) = depth1, depth2
    out = {}
    for name, next_ids, rows in (("mtp1", next1, [(first, p) for p in at]), ("mtp2", next2, [(o, 0) for o in second])):
        p = f"{prefix}.{name}."
        out[p + "next_ids"] = int32(next_ids)
        out[p + "streams"] = torch.stack([o.streams[0][i] for o, i in rows]).numpy()
        out[p + "logits"] = torch.stack([o.logits[i] for o, i in rows]).numpy()
        out[p + "experts"] = int32(torch.stack([o.experts[0][i] for o, i in rows]))
        out[p + "weights"] = torch.stack([o.weights[0][i] for o, i in rows]).numpy()
    return out


# ---------------------------------------------------------------- exact: check the backbone, dump the MTP block
def compare_with_transformers(out: Output, golden: dict[str, np.ndarray], prefix: str, at: torch.Tensor) -> dict[str, float]:
    for name, value in dump_choices(out, at, prefix).items():
        if value.dtype == np.int32 and not np.array_equal(value, golden[name]):
            raise RuntimeError(f"{name} differs from transformers")
    logprob = (out.logits[at].log_softmax(-1) - torch.from_numpy(golden[prefix + ".logits"]).log_softmax(-1)).abs()
    stream = max(np.abs(s[at].numpy() - golden[f"{prefix}.streams.layer{layer}"]).max() for layer, s in enumerate(out.streams))
    return {"logprob_worst": logprob.max().item(), "logprob_mean": logprob.mean().item(), "stream_worst": float(stream)}


def exact_configuration(name: str, folder: pathlib.Path) -> None:
    spec = rc.GOLDEN[name]
    golden = safetensors.numpy.load_file(folder / f"{name}.safetensors")
    port = make_port(spec)
    tensors, prompts = {}, []
    for i in range(sum(key.endswith(".ids") and "greedy" not in key for key in golden)):
        prefix = f"prompt{i}"
        ids, at = golden[f"{prefix}.ids"].tolist(), golden[f"{prefix}.positions"].tolist()
        state = port.new_state()
        out = port.run(ids, state)
        info = {"backbone_against_transformers": compare_with_transformers(out, golden, prefix, torch.tensor(at))}
        drafts = run_drafts(port, state, out.streams[-1], ids, int(golden[f"{prefix}.greedy.ids"][0]), at)
        first, second = drafts[0][1], drafts[1][1]
        gap = min(first.router_gap[at].min().item(), *(o.router_gap.item() for o in second))
        info["router_gap"], info["mtp1_margin"] = gap, margin(first.logits[at])
        if gap < KEEP_GAP or info["mtp1_margin"] < 1e-3:
            raise RuntimeError(f"{name} {prefix}: MTP choice too close: {info}")
        info["chunked_logprob"] = check_mtp_chunks(port, out, drafts[0], ids, first)
        tensors.update(dump_drafts(*drafts, at, prefix))
        prompts.append(rounded(info))
        print(f"{name} {prefix}: {json.dumps(prompts[-1])}", flush=True)
    write(folder, f"{name}_mtp", tensors, {"prompts": prompts})


def check_mtp_chunks(port: Port, out: Output, depth1, ids: list[int], first: Output) -> float:
    """The block in chunks of 7 with the known next ids must give what one call gave."""
    state, worst = port.new_state(), 0.0
    following = ids[1:]
    for p in range(0, len(following), 7):
        part = port.run_mtp(out.streams[-1][p:p + 7][:len(following) - p], following[p:p + 7], state, p)
        worst = max(worst, (part.logits.log_softmax(-1) - first.logits[p:p + len(part.logits)].log_softmax(-1)).abs().max().item())
    return worst


# ---------------------------------------------------------------- release rounding
def random_streams(spec: rc.Spec, name: str, n: int) -> torch.Tensor:
    """Streams [n, 4, D] on the bf16 grid that C++ regenerates: element i of rc.normal(name, seed, ..., std 1)."""
    v = rc.normal(name, spec.seed, (n, rc.Spec.HC_MULT, spec.hidden_size), 1.0, 0.0)
    return torch.from_numpy(rc.bf16_value(rc.bf16_bits(v)))


def run_parts(port: Port, spec: rc.Spec, ids: list[int]) -> dict[str, dict[str, torch.Tensor]]:
    """Each part on its own, from regenerated streams: part -> tensor name -> all positions."""
    n, tokens = len(ids), torch.tensor(ids)
    parts: dict[str, dict[str, torch.Tensor]] = {}
    for layer in RELEASE_LAYERS:
        out = port.empty_output(n)
        port.run_layer(layer, random_streams(spec, f"release.layer{layer}.streams", n), tokens, torch.arange(n), port.new_state(), out)
        parts[f"layer{layer}"] = part_values(out)
        if layer in out.entries:
            parts[f"layer{layer}"]["entries"] = out.entries[layer]
    out = port.run_mtp(random_streams(spec, "release.mtp.streams", n), tokens, port.new_state(), 0)
    parts["mtp"] = part_values(out) | {"logits": out.logits}
    parts["head"] = {"logits": port.head(random_streams(spec, "release.head.streams", n), "")}
    return parts


def part_values(out: Output) -> dict[str, torch.Tensor]:
    return {"after_attention": out.after_attention[0], "streams": out.streams[0], "experts": out.experts[0], "weights": out.weights[0],
            "gap": torch.minimum(out.router_gap, out.index_gap)}


def difference(x: torch.Tensor, y: torch.Tensor) -> dict[str, float]:
    """Of two [P, ...] tensors, relative to the rms of y at a position: median, worst and overall rms of the difference, and the
    number of positions without any."""
    d, scale = (x - y).flatten(1).square().mean(1), y.flatten(1).square().mean(1)
    each = (d / scale).sqrt()
    return {"median": each.median().item(), "worst": each.max().item(), "rms": (d.mean() / scale.mean()).sqrt().item(),
            "positions_equal": int((each == 0).sum())}


def release_configuration(folder: pathlib.Path) -> None:
    spec = rc.GOLDEN[RELEASE_CONFIG]
    rng = np.random.default_rng([spec.seed, 100])
    ids = [0] + rng.integers(2, spec.vocab_size, RELEASE_LENGTH - 1).tolist()
    at = list(RELEASE_POSITIONS)
    runs = {"release": {"release": True}, "fp64 arithmetic": {"release": True, "wide": True}, "exact arithmetic": {}}
    parts, models = {}, {}
    for name, options in runs.items():
        port = make_port(spec, **options)
        parts[name] = run_parts(port, spec, ids)
        state = port.new_state()
        out = port.run(ids, state)
        models[name] = (out, run_drafts(port, state, out.streams[-1], ids, int(out.logits[-1].argmax()), at))
    tensors = {"prompt0.ids": int32(ids), "prompt0.positions": int32(at)}
    for part, values in parts["release"].items():
        for name, value in values.items():
            if name != "gap":
                shown = value if name == "entries" else value[at]
                tensors[f"{part}.{name}"] = shown.numpy() if value.is_floating_point() else int32(shown)
    out, drafts = models["release"]
    tensors["prompt0.logits"] = out.logits[at].numpy()
    tensors.update(dump_choices(out, torch.tensor(at), "prompt0"))
    for layer in range(spec.layers):
        tensors[f"prompt0.streams.layer{layer}"] = out.streams[layer][at].numpy()
    tensors.update(dump_drafts(*drafts, at, "prompt0"))
    info: dict[str, object] = {"input_sha256": {
        name: hashlib.sha256(random_streams(spec, name, RELEASE_LENGTH).numpy().tobytes()).hexdigest()
        for name in [f"release.layer{layer}.streams" for layer in RELEASE_LAYERS] + ["release.mtp.streams", "release.head.streams"]}}
    info["smallest_gap_at_positions"] = {part: v["gap"][at].min().item() for part, v in parts["release"].items() if "gap" in v}
    for other in list(runs)[1:]:
        info[f"parts against {other}"] = {
            f"{part}.{name}": difference(value[at], parts[other][part][name][at]) if value.is_floating_point()
            else {"rows_that_differ_anywhere": (value != parts[other][part][name]).any(-1).sum().item()}
            for part, values in parts["release"].items() for name, value in values.items() if name not in ("gap", "weights")}
        info[f"model against {other}"] = whole_model_distance(models["release"], models[other], at)
    for part, values in parts["release"].items():
        if values.get("gap") is not None and values["gap"][at].min() < RELEASE_GAP:
            print(f"warning: {part} decides within {values['gap'][at].min():.2g} at a dumped position")
    print(f"release: {json.dumps(rounded(info), indent=1)}")
    write(folder, f"{RELEASE_CONFIG}_release", tensors, {"prompts": [rounded(info)]})


def whole_model_distance(a: tuple, b: tuple, at: list[int]) -> dict[str, object]:
    """How far two runs of the same prompt are apart at the dumped positions, errors of all layers together."""
    def logprob(x: torch.Tensor, y: torch.Tensor) -> list[float]:
        d = (x.log_softmax(-1) - y.log_softmax(-1)).abs()
        return [d.max().item(), d.mean().item()]

    (x, x_drafts), (y, y_drafts) = a, b
    return {
        "logprob_worst_mean": logprob(x.logits[at], y.logits[at]),
        "logprob_mean_by_position": [logprob(x.logits[p:p + 1], y.logits[p:p + 1])[1] for p in at],
        "mtp1_logprob_worst_mean": logprob(x_drafts[0][1].logits[at], y_drafts[0][1].logits[at]),
        "stream_rms_by_layer": [difference(s[at], t[at])["rms"] for s, t in zip(x.streams, y.streams)],
        "choices_that_differ": sum((s[at] != t[at]).any(-1).sum().item() for s, t in zip(x.experts, y.experts))
        + sum((x.entries[k][at] != y.entries[k][at]).any(-1).sum().item() for k in x.entries)}


def write(folder: pathlib.Path, name: str, tensors: dict[str, np.ndarray], extra: dict[str, object]) -> None:
    path = folder / f"{name}.safetensors"
    save(tensors, path)
    print(f"{path}: {path.stat().st_size} bytes, {len(tensors)} tensors")
    update_manifest(folder, name, {"file": path.name, "script": "tools/golden/make_port_golden.py", "date": datetime.date.today().isoformat(),
                                   "versions": versions(), **extra})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="*", default=sorted(rc.GOLDEN))
    parser.add_argument("--out", type=pathlib.Path, default=REPOSITORY / "tests/golden")
    args = parser.parse_args()
    quantisers.self_test()
    for name in args.config:
        exact_configuration(name, args.out)
    if RELEASE_CONFIG in args.config:
        release_configuration(args.out)


if __name__ == "__main__":
    main()
