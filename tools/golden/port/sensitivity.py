"""How far the release golden's parts move when one rounding point of port/model.py is left out.

    python -m port.sensitivity          # in tools/golden

Prints, for each point, the median over the dumped positions of the relative rms change of every part's streams (head: logits). A
tolerance on the median below these numbers notices the omission; the first line is the noise of other last bits (fp64 between the rounding
points).
"""

from __future__ import annotations

import numpy as np

import make_port_golden as golden
import random_checkpoint as rc

POINTS = ("3 input fp8", "3 output bf16", "norm bf16", "rotation bf16", "2 collapse bf16", "5 bf16 arithmetic", "5 product bf16", "6 row fp8",
          "7 pooled bf16", "8 index fp4", "8 hadamard bf16", "8 head weights bf16", "9 numerators bf16", "9 output bf16", "10 wo_a bf16",
          "11 streams bf16", "12 weight before w2", "12 inner bf16", "12 sum bf16", "13 collapse bf16", "14 sum bf16")


def main() -> None:
    spec = rc.GOLDEN[golden.RELEASE_CONFIG]
    rng = np.random.default_rng([spec.seed, 100])
    ids = [0] + rng.integers(2, spec.vocab_size, golden.RELEASE_LENGTH - 1).tolist()
    at = list(golden.RELEASE_POSITIONS)
    base = golden.run_parts(golden.make_port(spec, release=True), spec, ids)
    columns = [(part, "logits" if part == "head" else "streams") for part in base]
    print(f"{'':24}" + "".join(f"{part:>10}" for part, _ in columns) + "   choices that differ in layers 2, 4, of 300")
    for point in ("(fp64 arithmetic)",) + POINTS:
        port = golden.make_port(spec, release=True, wide=True) if point[0] == "(" else golden.make_port(spec, release=True, skip=frozenset({point}))
        parts = golden.run_parts(port, spec, ids)
        medians = [golden.difference(parts[part][name][at], base[part][name][at])["median"] for part, name in columns]
        rows = [(parts[p]["entries"] != base[p]["entries"]).any(-1).sum().item() for p in ("layer2", "layer4")]
        print(f"{point:24}" + "".join(f"{m:10.1e}" for m in medians) + f"   {rows}", flush=True)


if __name__ == "__main__":
    main()
