# SPDX-License-Identifier: Apache-2.0
"""Checks an exported folder from its bytes alone.

    python check_export.py FOLDER

Reads the shards with a reader of its own, decodes them, puts the numbers into transformers' DeepseekV4 and compares that
model's logits with those of the training forward pass (fp32, rounding off), on dialogues of the corpus.
"""
import argparse
import json
import struct
from pathlib import Path

import torch
from torch import Tensor

import quant as Q
from config import CONFIG
from corpus import documents
from export import tensor_map
from model import Mode, Runner, Tiny

TORCH = {"BF16": torch.bfloat16, "F32": torch.float32, "F8_E4M3": torch.uint8, "F8_E8M0": torch.uint8, "I8": torch.uint8, "I64": torch.int64}


def read_folder(folder: Path) -> dict[str, Tensor]:
    """Tensors by published name; quantised bytes stay bytes (uint8)."""
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    out: dict[str, Tensor] = {}
    for file in sorted(set(index["weight_map"].values())):
        data = (folder / file).read_bytes()
        (length,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8 : 8 + length])
        header.pop("__metadata__", None)
        for name, entry in header.items():
            assert index["weight_map"][name] == file, name
            begin, end = (8 + length + x for x in entry["data_offsets"])
            out[name] = torch.frombuffer(bytearray(data[begin:end]), dtype=TORCH[entry["dtype"]]).view(entry["shape"])
    assert set(out) == set(index["weight_map"])
    return out


def decode(raw: dict[str, Tensor]) -> dict[str, Tensor]:
    """Numbers in fp32 under the published names; scales are used up."""
    out = {}
    for name, t in raw.items():
        scale = raw.get(name.removesuffix(".weight") + ".scale")
        if name.endswith(".scale"):
            continue
        if scale is not None:
            t = (Q.decode_mxfp4 if ".experts." in name else Q.decode_fp8)(t, scale)
        out[name] = t.float() if t.is_floating_point() else t
    return out


@torch.no_grad()
def check_files(model: Tiny, folder: Path) -> None:
    """The files hold exactly the numbers of `model`, no tensor more or less."""
    numbers = decode(read_folder(folder))
    expected = tensor_map(model)
    names = {n if n in numbers else n + ".weight": p for n, (p, _) in expected.items()}
    assert set(names) == set(numbers), set(names) ^ set(numbers)
    for name, p in names.items():
        assert torch.equal(numbers[name], p.detach().cpu()), f"{name}: the file differs from the model"


@torch.no_grad()
def load_folder(model: Tiny, folder: Path) -> None:
    numbers = decode(read_folder(folder))
    for name, (p, _) in tensor_map(model).items():
        p.copy_(numbers[name if name in numbers else name + ".weight"])


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--documents", type=int, default=8)
    args = parser.parse_args()
    from data import load_tokenizer

    model = Tiny(CONFIG)
    load_folder(model, args.folder)
    check_files(model, args.folder)
    model.eval()
    for layer in model.lm.model.layers:  # equal index scores at the cut may be kept either way: keep all entries here
        if hasattr(layer.self_attn.compressor, "indexer"):
            layer.self_attn.compressor.indexer.index_topk = 1 << 20
    tokenizer, texts, runner = load_tokenizer(), documents(99), Runner(model, compiled=False)
    worst = 0.0
    for _ in range(args.documents):
        ids = torch.tensor([tokenizer.encode(next(texts), add_special_tokens=False).ids])
        length = ids.shape[1]
        padded = torch.full((1, -(-length // 128) * 128), 2)
        padded[:, :length] = ids
        doc = torch.where(torch.arange(padded.shape[1]) < length, 0, -1)[None]
        ours, _ = runner.logits(padded, doc, Mode(dtype=torch.float32))
        theirs = model.lm(input_ids=ids, use_cache=False).logits
        gap = (ours[:, :length].log_softmax(-1) - theirs.log_softmax(-1)).abs().max().item()
        print(f"{length} tokens: log-probabilities differ by at most {gap:.2e}")
        worst = max(worst, gap)
    assert worst < 1e-3, worst


if __name__ == "__main__":
    main()
