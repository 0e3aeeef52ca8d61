"""Golden file of the DSpark drafter from the second implementation (port/), in exact arithmetic.

    python make_dspark_golden.py             # after make_golden.py -> tests/golden/d_dspark.safetensors

Configuration d (random_checkpoint.py), one prompt of random tokens. A draft at position p follows the prompt's first p + 1 tokens and the
greedy token after them. POSITIONS that any router decides by less than KEEP_GAP, or where two candidates' logits are
closer than KEEP_MARGIN, are left out: there a correct implementation may choose otherwise. P positions stay, block = dspark_block_size:

    prompt0.ids I32 [n]; .positions I32 [P]; .next_ids I32 [P]
    prompt0.logits F32 [P, V]                           the backbone's
    prompt0.context F32 [P, D]                          g of deepseek-v4.md 5.2
    prompt0.dspark.streams.stageS F32 [P, block, 4, D]  after the first and the last stage
    prompt0.dspark.logits F32 [P, block, V]             the Markov correction included
    prompt0.dspark.tokens I32 [P, block]; .confidence F32 [P, block] raw
"""

from __future__ import annotations

import argparse
import datetime
import json
import pathlib

import numpy as np
import torch

import random_checkpoint as rc
from make_golden import REPOSITORY, rounded, save, update_manifest, versions
from make_port_golden import int32
from port.model import Draft, Port

CONFIG = "d"
LENGTH = 300
# Rings that are empty but for one row, fill, are just full, and have wrapped; and all around a page's end.
POSITIONS = (0, 1, 2, 3, 5, 11, 40, 63, 100, 126, 127, 128, 129, 131, 180, 200, 254, 255, 256, 257, 298, 299)
KEEP_GAP = 2e-5
KEEP_MARGIN = 1e-3


def check_chunks(port: Port, streams: list[torch.Tensor], g: torch.Tensor, draft: Draft, next_id: int, position: int) -> float:
    """Rings filled in chunks of 7 and a draft's own rows forgotten must give the same block."""
    state = port.new_state()
    for begin in range(0, position + 1, 7):
        end = min(begin + 7, position + 1)
        port.observe_dspark([s[begin:end] for s in streams], state, begin)
        port.run_dspark(next_id, state, end - 1)
    again = port.run_dspark(next_id, state, position)
    return (again.logits - draft.logits).abs().max().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=REPOSITORY / "tests/golden")
    args = parser.parse_args()
    torch.set_num_threads(1)
    spec = rc.DSPARK[CONFIG]
    port = Port(dict(rc.config(spec)), {name: torch.from_numpy(v) for name, v in rc.values(spec).items()})
    ids = [0] + np.random.default_rng([spec.seed, 100]).integers(2, spec.vocab_size, LENGTH - 1).tolist()
    state = port.new_state()
    out = port.run(ids, state)
    g = port.observe_dspark(out.streams, state, 0)
    drafts: dict[int, tuple[int, Draft]] = {}
    for position in POSITIONS:
        next_id = int(out.logits[position].argmax())
        draft = port.run_dspark(next_id, state, position)
        gap = min(draft.router_gap, out.router_gap[:position + 1].min().item(), out.index_gap[:position + 1].min().item())
        if gap >= KEEP_GAP and draft.margin >= KEEP_MARGIN:
            drafts[position] = (next_id, draft)
    at = list(drafts)
    if not ({0, 126, 127, 128} & set(at)) or at[-1] < 256:
        raise RuntimeError(f"only positions {at} are decided clearly: choose another seed")
    kept = [draft for _, draft in drafts.values()]
    tensors = {"prompt0.ids": int32(ids), "prompt0.positions": int32(at), "prompt0.next_ids": int32([n for n, _ in drafts.values()]),
               "prompt0.logits": out.logits[at].numpy(), "prompt0.context": g[at].numpy(),
               "prompt0.dspark.logits": torch.stack([d.logits for d in kept]).numpy(),
               "prompt0.dspark.tokens": int32(torch.stack([d.tokens for d in kept])),
               "prompt0.dspark.confidence": torch.stack([d.confidence for d in kept]).numpy()}
    for stage in (0, port.dspark_stages - 1):
        tensors[f"prompt0.dspark.streams.stage{stage}"] = torch.stack([d.streams[stage] for d in kept]).numpy()
    info = {"chunked_logits": max(check_chunks(port, out.streams, g, d, n, p) for p, (n, d) in drafts.items()),
            "router_gap": min(d.router_gap for d in kept), "margin": min(d.margin for d in kept), "positions": at}
    print(json.dumps(rounded(info)))
    path = args.out / f"{CONFIG}_dspark.safetensors"
    save(tensors, path)
    print(f"{path}: {path.stat().st_size} bytes, {len(tensors)} tensors")
    update_manifest(args.out, f"{CONFIG}_dspark", {
        "file": path.name, "script": "tools/golden/make_dspark_golden.py", "date": datetime.date.today().isoformat(), "versions": versions(),
        "seed": spec.seed, "config": dict(rc.config(spec)), "checkpoint_sha256": {"published": rc.sha256(spec)}, "prompts": [rounded(info)]})


if __name__ == "__main__":
    main()
