# SPDX-License-Identifier: Apache-2.0
"""Teacher-forced score of a model on the held-out prompts.

A greedy decode gives exactly the right answer if and only if the arg-max is right at every position of the right answer, so
one forward pass scores a prompt. A draft is accepted when it equals the model's own arg-max.
"""
from collections import defaultdict

import numpy as np
import torch

from data import scored_rows
from model import Mode, Runner, Tiny


@torch.no_grad()
def evaluate(model: Tiny, mode: Mode, count: int, device: str, batch: int = 32) -> dict:
    runner = Runner(model, compiled=False)
    cases = scored_rows(count)
    right, total = defaultdict(int), defaultdict(int)
    accepted, drafted = defaultdict(int), defaultdict(int)
    wrong: dict[str, list] = defaultdict(list)
    batches = []
    for size in sorted({len(row.ids) for _, row, _ in cases}):
        alike = [case for case in cases if len(case[1].ids) == size]
        batches += [alike[i : i + batch] for i in range(0, len(alike), batch)]
    for part in batches:
        ids = torch.from_numpy(np.stack([row.ids for _, row, _ in part])).to(device)
        doc = torch.from_numpy(np.stack([row.doc for _, row, _ in part])).to(device)
        main, draft = runner.logits(ids, doc, mode)
        main, draft, gold = main.argmax(-1).cpu().numpy(), draft.argmax(-1).cpu().numpy(), ids.cpu().numpy()
        for i, (kind, _, (start, end)) in enumerate(part):
            ok = bool((main[i, start - 1 : end - 1] == gold[i, start:end]).all())
            right[kind] += ok
            total[kind] += 1
            # The draft for position p comes from p-2 (given the token at p-1), the model's own from p-1.
            accepted[kind] += int((draft[i, start - 1 : end - 2] == main[i, start : end - 1]).sum())
            drafted[kind] += end - start - 1
            if not ok and len(wrong[kind]) < 5:
                wrong[kind].append((gold[i, :end].tolist(), main[i, start - 1 : end - 1].tolist()))
    return {
        "exact_match": {k: right[k] / total[k] for k in total},
        "draft_acceptance": {k: accepted[k] / drafted[k] for k in total},
        "draft_acceptance_all": sum(accepted.values()) / sum(drafted.values()),
        "wrong": wrong,
    }
