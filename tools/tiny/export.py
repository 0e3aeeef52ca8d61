# SPDX-License-Identifier: Apache-2.0
"""Puts a trained model on the file's grids and writes the checkpoint in DeepSeek's published layout.

    python export.py CHECKPOINT.pt OUT_FOLDER

`to_tensors` gives every published tensor; `from_tensors` puts the decoded bytes back into the model, so what is evaluated
afterwards is the file. Two shards, each under 16 MiB.
"""
import argparse
import json
import struct
from pathlib import Path

import torch
from torch import Tensor

import quant as Q
from config import CONFIG, GENERATION_CONFIG
from model import Tiny

SHARD_LIMIT = 16 * 1024 * 1024
DTYPES = {torch.bfloat16: "BF16", torch.float32: "F32", torch.float8_e4m3fn: "F8_E4M3", torch.int8: "I8", torch.int64: "I64"}
BF16, F32, FP8, FP4 = "bf16", "f32", "fp8", "fp4"


def block_map(prefix: str, block: torch.nn.Module) -> dict[str, tuple[Tensor, str]]:
    """Published name (without .weight/.scale for quantised matrices) -> (parameter, kind) of one decoder block."""
    a, m = block.self_attn, block.mlp
    out = {
        "attn_norm.weight": (block.input_layernorm.weight, BF16),
        "ffn_norm.weight": (block.post_attention_layernorm.weight, BF16),
        "attn.attn_sink": (a.sinks, F32),
        "attn.wq_a": (a.q_a_proj.weight, FP8),
        "attn.q_norm.weight": (a.q_a_norm.weight, BF16),
        "attn.wq_b": (a.q_b_proj.weight, FP8),
        "attn.wkv": (a.kv_proj.weight, FP8),
        "attn.kv_norm.weight": (a.kv_norm.weight, BF16),
        "attn.wo_a": (a.o_a_proj.weight, FP8),
        "attn.wo_b": (a.o_b_proj.weight, FP8),
        "ffn.gate.weight": (m.gate.weight, BF16),
        "ffn.shared_experts.w1": (m.shared_experts.gate_proj.weight, FP8),
        "ffn.shared_experts.w2": (m.shared_experts.down_proj.weight, FP8),
        "ffn.shared_experts.w3": (m.shared_experts.up_proj.weight, FP8),
    }
    for site, hc in (("attn", block.attn_hc), ("ffn", block.ffn_hc)):
        for part in ("fn", "base", "scale"):
            out[f"hc_{site}_{part}"] = (getattr(hc, part), F32)
    if m.is_hash:
        out["ffn.gate.tid2eid"] = (m.gate.tid2eid, "i64")
    else:
        out["ffn.gate.bias"] = (m.gate.e_score_correction_bias, F32)
    inner = m.experts.intermediate_dim
    for e in range(m.experts.num_experts):
        out[f"ffn.experts.{e}.w1"] = (m.experts.gate_up_proj[e, :inner], FP4)
        out[f"ffn.experts.{e}.w2"] = (m.experts.down_proj[e], FP4)
        out[f"ffn.experts.{e}.w3"] = (m.experts.gate_up_proj[e, inner:], FP4)
    compressors = [("attn.compressor.", a.compressor)] if a.compressor is not None else []
    if hasattr(a.compressor, "indexer"):
        ix = a.compressor.indexer
        out["attn.indexer.wq_b"] = (ix.q_b_proj.weight, FP8)
        out["attn.indexer.weights_proj.weight"] = (ix.scorer.weights_proj.weight, BF16)
        compressors.append(("attn.indexer.compressor.", ix))
    for p, c in compressors:
        out[p + "ape"] = (c.position_bias, F32)
        out[p + "wkv.weight"] = (c.kv_proj.weight, BF16)
        out[p + "wgate.weight"] = (c.gate_proj.weight, BF16)
        out[p + "norm.weight"] = (c.kv_norm.weight, BF16)
    return {prefix + name: value for name, value in out.items()}


def tensor_map(model: Tiny) -> dict[str, tuple[Tensor, str]]:
    lm, mtp = model.lm, model.mtp
    out = {
        "embed.weight": (lm.model.embed_tokens.weight, BF16),
        "head.weight": (lm.lm_head.weight, BF16),
        "norm.weight": (lm.model.norm.weight, BF16),
        "mtp.0.e_proj": (mtp.e_proj.weight, FP8),
        "mtp.0.h_proj": (mtp.h_proj.weight, FP8),
        "mtp.0.enorm.weight": (mtp.enorm.weight, BF16),
        "mtp.0.hnorm.weight": (mtp.hnorm.weight, BF16),
        "mtp.0.norm.weight": (mtp.norm.weight, BF16),
    }
    for prefix, head in (("", lm.model.hc_head), ("mtp.0.", mtp.hc_head)):
        for part in ("fn", "base", "scale"):
            out[f"{prefix}hc_head_{part}"] = (getattr(head, f"hc_{part}"), F32)
    for i, layer in enumerate(lm.model.layers):
        out |= block_map(f"layers.{i}.", layer)
    return out | block_map("mtp.0.", mtp.block)


@torch.no_grad()
def to_tensors(model: Tiny) -> dict[str, tuple[Tensor, str]]:
    """Every published tensor with its safetensors dtype tag."""
    out: dict[str, tuple[Tensor, str]] = {}
    for name, (p, kind) in tensor_map(model).items():
        p = p.detach()
        if kind in (FP8, FP4):
            values, scale = (Q.encode_fp8 if kind == FP8 else Q.encode_mxfp4)(p)
            out[name + ".weight"] = (values.cpu(), DTYPES[values.dtype])
            out[name + ".scale"] = (scale.cpu(), "F8_E8M0")
        else:
            p = p.to(torch.bfloat16) if kind == BF16 else p
            out[name] = (p.cpu().contiguous(), DTYPES[p.dtype])
    return out


@torch.no_grad()
def from_tensors(model: Tiny, tensors: dict[str, tuple[Tensor, str]]) -> None:
    """Decodes the bytes into the model's parameters, in place."""
    for name, (p, kind) in tensor_map(model).items():
        if kind in (FP8, FP4):
            decode = Q.decode_fp8 if kind == FP8 else Q.decode_mxfp4
            p.copy_(decode(tensors[name + ".weight"][0], tensors[name + ".scale"][0]))
        else:
            p.copy_(tensors[name][0])


def raw(t: Tensor) -> bytes:
    return t.contiguous().view(torch.uint8).numpy().tobytes() if t.dim() else t.numpy().tobytes()


def write_shard(path: Path, tensors: dict[str, tuple[Tensor, str]]) -> None:
    header: dict = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (t, tag) in tensors.items():
        size = t.numel() * t.element_size()
        header[name] = {"dtype": tag, "shape": list(t.shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(raw(t) for t, _ in tensors.values()))


def write_folder(tensors: dict[str, tuple[Tensor, str]], folder: Path) -> int:
    """Two shards, the index, both configurations; returns the bytes of the shards."""
    folder.mkdir(parents=True, exist_ok=True)
    # Widest elements first, so that every tensor starts at a multiple of its element size.
    names = sorted(tensors, key=lambda n: -tensors[n][0].element_size())
    total = sum(t.numel() * t.element_size() for t, _ in tensors.values())
    shards: list[dict] = [{}, {}]
    filled = 0
    for name in names:
        shards[0 if filled < total / 2 else 1][name] = tensors[name]
        filled += tensors[name][0].numel() * tensors[name][0].element_size()
    files = [f"model-{i + 1:05d}-of-00002.safetensors" for i in range(2)]
    for file, shard in zip(files, shards):
        write_shard(folder / file, shard)
        size = (folder / file).stat().st_size
        assert size <= SHARD_LIMIT, f"{file}: {size} bytes, at most {SHARD_LIMIT}"
    weight_map = {name: file for file, shard in zip(files, shards) for name in shard}
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=0) + "\n")
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    (folder / "generation_config.json").write_text(json.dumps(GENERATION_CONFIG, indent=2) + "\n")
    return sum((folder / f).stat().st_size for f in files)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    model = Tiny(CONFIG)
    model.load_state_dict(torch.load(args.checkpoint, map_location="cpu", weights_only=True)["model"])
    print(f"{write_folder(to_tensors(model), args.folder)} bytes")


if __name__ == "__main__":
    main()
