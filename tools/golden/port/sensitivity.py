"""How far the release golden's one-layer parts move when one rounding point of port/model.py is left out.

    python -m port.sensitivity          # in tools/golden

Prints, for each point, the median over the dumped positions of the relative rms change of every part's streams and of the MTP block's, the logits'
for the head, and how many of 300 index choices differ. A tolerance on the median below these numbers notices the omission; the first line is
the noise of other last bits (fp64 between the rounding points).
"""

from __future__ import annotations

import torch

import make_port_golden as golden

POINTS = ("3 input fp8", "3 output bf16", "norm bf16", "rotation bf16", "2 collapse bf16", "5 bf16 arithmetic", "5 product bf16", "6 row fp8",
          "7 pooled bf16", "8 index fp4", "8 hadamard bf16", "8 head weights bf16", "9 numerators bf16", "9 output bf16", "10 wo_a bf16",
          "11 streams bf16", "12 weight before w2", "12 inner bf16", "12 sum bf16", "13 collapse bf16", "14 sum bf16")


def main() -> None:
    torch.set_num_threads(1)
    base = {part: golden.release_run(part, release=True).values() for part in golden.PARTS}
    names = ("streams.layer0", "logits", "mtp1.streams at early positions")
    print(f"{'':22}" + "".join(f"{part + ' ' + name.split('.')[0]:>16}" for part in base for name in names) + "   csa choices")
    for point in ("(fp64 arithmetic)",) + POINTS:
        options = {"wide": True} if point[0] == "(" else {"skip": frozenset({point})}
        line, choices = f"{point:22}", 0
        for part, reference in base.items():
            values = golden.release_run(part, release=True, **options).values()
            line += "".join(f"{golden.difference(values[name], reference[name])['median']:16.1e}" for name in names)
            if part == "csa":
                choices = (values["index.layer0.entries"] != reference["index.layer0.entries"]).any(-1).sum().item()
        print(f"{line}   {choices}", flush=True)


if __name__ == "__main__":
    main()
