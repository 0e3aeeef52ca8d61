"""How far the exact goldens move when the model is computed slightly wrong.

    python -m port.exact_sensitivity        # in tools/golden

For configurations a, b, c: the worst change of a log-probability over the first prompt's dumped positions, for one mistake at a time. The
tolerance of the comparison is 2e-4: a mistake below it would pass.
"""

from __future__ import annotations

import pathlib

import safetensors.numpy
import torch

import random_checkpoint as rc
from make_golden import REPOSITORY
from port.model import Port

# config key -> what to make of it
CONFIG_MISTAKES = {
    "hc_eps": lambda v: 0.0, "hc_sinkhorn_iters": lambda v: v - 1, "rms_norm_eps": lambda v: v * 2, "swiglu_limit": lambda v: v * 1.5,
    "routed_scaling_factor": lambda v: 1.0, "sliding_window": lambda v: v - 1, "index_topk": lambda v: v - 1, "num_experts_per_tok": lambda v: v - 1,
    "rope_theta": lambda v: 2 * v, "compress_rope_theta": lambda v: 2 * v,
    "rope_scaling": lambda v: v | {"factor": 8},
}
# end of a weight's name -> what to make of it
ZERO, ONE = torch.zeros_like, torch.ones_like
WEIGHT_MISTAKES = {
    "attn_sink": ZERO, "compressor.ape": ZERO, "indexer.compressor.ape": ZERO, "gate.bias": ZERO, "hc_attn_base": ZERO, "hc_ffn_base": ZERO,
    "hc_attn_scale": ONE, "hc_ffn_scale": ONE, "hc_head_base": ZERO, "hc_head_scale": ONE, "q_norm.weight": ONE, "kv_norm.weight": ONE,
    "attn.compressor.norm.weight": ONE, "indexer.compressor.norm.weight": ONE, "attn_norm.weight": ONE, "ffn_norm.weight": ONE, "norm.weight": ONE,
    "weights_proj.weight": torch.abs, "gate.tid2eid": lambda t: t.roll(1, 0),
}


class WrongPort(Port):
    """One structural mistake, by name."""

    mistake = ""

    def rotate(self, x, positions, ratio, inverse=False):
        if inverse and self.mistake == "no inverse rotation of the output":
            return x
        if not inverse and ratio and self.mistake == "entry positions at the window's last token" and len(positions) and x.dim() == 2 \
                and not torch.equal(positions, torch.arange(len(positions))):
            positions = positions + ratio - 1
        return super().rotate(x, positions, 0 if self.mistake == "main rope table everywhere" else ratio, inverse)

    def expert(self, p, x, weight):
        if self.mistake == "no clamp in the shared expert" and weight is None:
            wrong = WrongPort(self.c | {"swiglu_limit": 1e9}, self.w)
            return Port.expert(wrong, p, x, weight)
        return super().expert(p, x, weight)

    def site(self, streams, p, kind, sublayer):
        if self.mistake == "comb not transposed":
            original = torch.einsum
            try:
                torch.einsum = lambda e, *a: original("nkj,njd->nkd" if e == "njk,njd->nkd" else e, *a)
                return super().site(streams, p, kind, sublayer)
            finally:
                torch.einsum = original
        return super().site(streams, p, kind, sublayer)


STRUCTURAL = ("no inverse rotation of the output", "entry positions at the window's last token", "main rope table everywhere", "no clamp in the shared expert",
              "comb not transposed")


def main() -> None:
    torch.set_num_threads(1)
    table: dict[str, dict[str, float]] = {}
    for name in sorted(rc.GOLDEN):
        spec = rc.GOLDEN[name]
        golden = safetensors.numpy.load_file(pathlib.Path(REPOSITORY) / f"tests/golden/{name}.safetensors")
        ids, at = golden["prompt0.ids"].tolist(), golden["prompt0.positions"].tolist()
        expected = torch.from_numpy(golden["prompt0.logits"]).log_softmax(-1)
        config, weights = dict(rc.config(spec)), {k: torch.from_numpy(v) for k, v in rc.values(spec).items()}

        def worst(port: Port) -> float:
            return (port.run(ids, port.new_state()).logits[at].log_softmax(-1) - expected).abs().max().item()

        def note(mistake: str, port: Port) -> None:
            table.setdefault(mistake, {})[name] = worst(port)

        note("(none)", Port(config, weights))
        for key, change in CONFIG_MISTAKES.items():
            note(key, Port(config | {key: change(config[key])}, weights))
        for end, change in WEIGHT_MISTAKES.items():
            hit = [k for k in weights if not k.startswith("mtp.") and k.endswith(end) and (end != "norm.weight" or k == end)]
            if hit:
                note(end, Port(config, weights | {k: change(weights[k]) for k in hit}))
        for mistake in STRUCTURAL:
            port = WrongPort(config, weights)
            port.mistake = mistake
            note(mistake, port)
        print(f"{name} done", flush=True)
    print(f"{'mistake':48}" + "".join(f"{n:>10}" for n in sorted(rc.GOLDEN)))
    for mistake, row in table.items():
        print(f"{mistake:48}" + "".join(f"{row[n]:10.1e}" if n in row else " " * 10 for n in sorted(rc.GOLDEN)))


if __name__ == "__main__":
    main()
