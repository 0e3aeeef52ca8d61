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

a_release.safetensors, the rounding listed in port/model.py, 300 random tokens, P = 16:
    prompt0.{ids,positions,logits,streams.layerL,router.layerL.*,index.layerL.entries,mtp1.*,mtp2.*}     configuration a
    sliding.*, csa.*, hca.*     the same names (no ids, positions, mtp2) for configuration a cut to one layer: ratio 0 with hash routing,
        ratios 4 and 128 with score routing (PARTS); csa.index.layer0.entries has all 300 positions
    The next_ids of the last position are the argmax of its logits.

Coarse grids turn the last bit of a sum into a whole step, and several layers turn such steps into noise (manifest: "against fp64 arithmetic"),
so the model of six layers can only be compared loosely. One layer can be compared well: most positions are equal bit for bit.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
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
PARTS = {"sliding": {"compress_ratios": (0,), "num_hash_layers": 1}, "csa": {"compress_ratios": (4,), "num_hash_layers": 0},
         "hca": {"compress_ratios": (128,), "num_hash_layers": 0}}
RELEASE_POSITIONS = (0, 1, 2, 3, 4, 5, 7, 11, 15, 31, 63, 127, 128, 200, 255, 299)
EARLY = 9  # of them are below 16: there even two layers in a row are mostly equal
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
@dataclasses.dataclass
class Run:
    """One release prompt through one model."""

    port: Port
    out: Output
    drafts: tuple
    at: list[int]

    def values(self) -> dict[str, torch.Tensor]:
        """What is compared: floats at the dumped positions, index choices at all of them."""
        first = self.drafts[0][1]
        named = {f"streams.layer{layer}": s[self.at] for layer, s in enumerate(self.out.streams)}
        named |= {"logits": self.out.logits[self.at], "mtp1.streams": first.streams[0][self.at], "mtp1.logits": first.logits[self.at],
                  "mtp1.streams at early positions": first.streams[0][self.at[:EARLY]]}
        return named | {f"index.layer{layer}.entries": e for layer, e in self.out.entries.items()}


def release_spec(part: str | None) -> rc.Spec:
    spec = rc.GOLDEN[RELEASE_CONFIG]
    return dataclasses.replace(spec, **PARTS[part]) if part else spec


def release_run(part: str | None, **options) -> Run:
    """The release prompt through the whole configuration, or through one of PARTS."""
    port, ids, at = make_port(release_spec(part), **options), release_ids(), list(RELEASE_POSITIONS)
    state = port.new_state()
    out = port.run(ids, state)
    return Run(port, out, run_drafts(port, state, out.streams[-1], ids, int(out.logits[-1].argmax()), at), at)


def release_ids() -> list[int]:
    spec = rc.GOLDEN[RELEASE_CONFIG]
    rng = np.random.default_rng([spec.seed, 100])
    return [0] + rng.integers(2, spec.vocab_size, RELEASE_LENGTH - 1).tolist()


def difference(x: torch.Tensor, y: torch.Tensor) -> dict[str, float]:
    """Of two [P, ...] tensors, relative to the rms of y at a position: median, worst and overall rms of the difference, and the
    number of positions without any."""
    d, scale = (x - y).flatten(1).square().mean(1), y.flatten(1).square().mean(1)
    each = (d / scale).sqrt()
    return {"median": each.median().item(), "worst": each.max().item(), "rms": (d.mean() / scale.mean()).sqrt().item(),
            "positions_equal": int((each == 0).sum())}


def compare_runs(a: Run, b: Run) -> dict[str, object]:
    values, others = a.values(), b.values()
    out: dict[str, object] = {name: difference(v, others[name]) if v.is_floating_point()
                              else {"rows_that_differ": (v != others[name]).any(-1).sum().item(), "rows": len(v)} for name, v in values.items()}
    logprob = (values["logits"].log_softmax(-1) - others["logits"].log_softmax(-1)).abs()
    out["logprob"] = {"worst": logprob.max().item(), "mean": logprob.mean().item(), "mean_by_position": logprob.mean(-1).tolist()}
    return out


def release_configuration(folder: pathlib.Path) -> None:
    at = list(RELEASE_POSITIONS)
    tensors = {"prompt0.ids": int32(release_ids()), "prompt0.positions": int32(at)}
    info: dict[str, object] = {}
    for part in (None, *PARTS):
        prefix = part or "prompt0"
        run, wide, exact = (release_run(part, **o) for o in ({"release": True}, {"release": True, "wide": True}, {}))
        tensors[f"{prefix}.logits"] = run.out.logits[at].numpy()
        for layer, streams in enumerate(run.out.streams):
            tensors[f"{prefix}.streams.layer{layer}"] = streams[at].numpy()
        tensors.update(dump_choices(run.out, torch.tensor(at), prefix))
        tensors.update({k: v for k, v in dump_drafts(*run.drafts, at, prefix).items() if part is None or ".mtp2." not in k})
        if part == "csa":
            tensors["csa.index.layer0.entries"] = int32(run.out.entries[0])
        info[prefix] = {"router_gap_at_positions": run.out.router_gap[at].min().item(), "mtp1_router_gap": run.drafts[0][1].router_gap[at].min().item(),
                        "against fp64 arithmetic": compare_runs(run, wide), "against exact arithmetic": compare_runs(run, exact)}
        if part:
            info[prefix]["checkpoint_sha256"] = rc.sha256(release_spec(part))
            if info[prefix]["router_gap_at_positions"] < RELEASE_GAP:
                raise RuntimeError(f"{part}: a router decides within {info[prefix]['router_gap_at_positions']:.2g}")
        print(f"release {prefix}: {json.dumps(rounded(info[prefix]))}", flush=True)
    write(folder, f"{RELEASE_CONFIG}_release", tensors, {"parts": rounded(info)})


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
    torch.set_num_threads(1)
    quantisers.self_test()
    for name in args.config:
        exact_configuration(name, args.out)
    if RELEASE_CONFIG in args.config:
        release_configuration(args.out)


if __name__ == "__main__":
    main()
