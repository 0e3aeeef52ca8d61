# SPDX-License-Identifier: Apache-2.0
"""Documents -> packed rows of token ids for training and teacher-forced evaluation (see model.py for the packing rule)."""
import os
from pathlib import Path
from typing import Iterator

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
import numpy as np  # noqa: E402
import torch  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402
from torch.utils.data import IterableDataset, get_worker_info  # noqa: E402

from corpus import SCORED, documents, encoder, held_out, turn  # noqa: E402
from tasks import Task  # noqa: E402

TOKENIZER_PATH = Path(__file__).parents[2] / "models/tiny/tokenizer.json"
PAD = 2
LONG = 128  # documents of this many tokens or more start at multiples of it
OTHER_WEIGHT = 0.1  # loss weight of what the model does not have to say
TEXT_WEIGHT = 0.5  # plain text


def load_tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(TOKENIZER_PATH))


class Weigher:
    """Loss weights: 1 on what the assistant says (EOS included), little elsewhere."""

    def __init__(self, tokenizer: Tokenizer):
        self.assistant = tokenizer.token_to_id(encoder.ASSISTANT_TOKEN)
        self.eos = tokenizer.token_to_id(encoder.EOS_TOKEN)

    def spans(self, ids: np.ndarray) -> list[tuple[int, int]]:
        """[first, end) of each assistant turn; the token that opens or closes thinking belongs to the prompt."""
        ends = np.flatnonzero(ids == self.eos)
        starts = np.flatnonzero(ids == self.assistant) + 2
        return [(s, ends[np.searchsorted(ends, s)] + 1) for s in starts]

    def __call__(self, ids: np.ndarray) -> np.ndarray:
        spans = self.spans(ids)
        weight = np.full(len(ids), OTHER_WEIGHT if spans else TEXT_WEIGHT, np.float32)
        for start, end in spans:
            weight[start:end] = 1.0
        return weight


class Row:
    def __init__(self, length: int):
        self.ids = np.full(length, PAD, np.int64)
        self.doc = np.full(length, -1, np.int64)
        self.weight = np.zeros(length, np.float32)
        self.used = 0
        self.count = 0

    def put(self, ids: np.ndarray, weight: np.ndarray) -> int:
        at, end = self.used, self.used + len(ids)
        self.ids[at:end], self.doc[at:end], self.weight[at:end] = ids, self.count, weight
        self.count += 1
        self.used = -(-end // 4) * 4
        return at


def pack(stream: Iterator[np.ndarray], weigh: Weigher, length: int, buffer: int = 192) -> Iterator[Row]:
    """Greedy: a long document at each multiple of 128 that has room, the rest filled with the longest short ones that fit."""
    longs: list[np.ndarray] = []
    shorts: list[np.ndarray] = []
    while True:
        while len(longs) + len(shorts) < buffer:
            ids = next(stream)
            if len(ids) <= length:
                (longs if len(ids) >= LONG else shorts).append(ids)
        row = Row(length)
        while row.used < length:
            if row.used % LONG == 0:
                room = length - row.used
                at = next((i for i, d in enumerate(longs) if len(d) <= room), None)
                if at is not None and len(longs) * 4 >= len(shorts):
                    ids = longs.pop(at)
                    row.put(ids, weigh(ids))
                    continue
            gap = LONG - row.used % LONG if longs else length - row.used
            fitting = [i for i, d in enumerate(shorts) if len(d) <= gap]
            if not fitting:
                row.used = min(length, -(-(row.used + 1) // LONG) * LONG)
                continue
            best = max(fitting, key=lambda i: len(shorts[i])) if gap <= 64 else fitting[0]
            ids = shorts.pop(best)
            row.put(ids, weigh(ids))
        yield row


class PackedCorpus(IterableDataset):
    """Rows (ids, doc, weight) in narrow types (batches travel through shared memory); every worker has its own seeded stream."""

    def __init__(self, length: int, seed: int):
        self.length, self.seed = length, seed

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        worker = get_worker_info()
        tokenizer = load_tokenizer()

        def stream() -> Iterator[np.ndarray]:
            texts = documents(self.seed * 1000 + (worker.id if worker else 0))
            while True:
                for e in tokenizer.encode_batch([next(texts) for _ in range(256)], add_special_tokens=False):
                    yield np.asarray(e.ids, np.int64)

        for row in pack(stream(), Weigher(tokenizer), self.length):
            yield torch.from_numpy(row.ids.astype(np.int16)), torch.from_numpy(row.doc.astype(np.int16)), torch.from_numpy(row.weight.astype(np.float16))


def scored_rows(count: int) -> list[tuple[str, Row, tuple[int, int]]]:
    """Held-out prompts with their right answers, one a row of a multiple of 128 tokens: (class, row, span of the answer)."""
    tokenizer = load_tokenizer()
    weigh = Weigher(tokenizer)
    out = []
    for kind in SCORED:
        for i, case in enumerate(held_out(kind, count)):
            task = Task(kind, "", case["user"], case["answer"] or "", "", case["tools"], case["call"])
            messages = turn(task, thinking=False)[:2]
            if case["tools"]:
                messages.insert(0, {"role": "system", "content": "", "tools": case["tools"]})
            ids = np.asarray(tokenizer.encode(encoder.encode_messages(messages), add_special_tokens=False).ids, np.int64)
            row = Row(128 if len(ids) <= 128 else 512)
            row.put(ids, weigh(ids))
            out.append((kind, row, weigh.spans(ids)[-1]))
    return out
