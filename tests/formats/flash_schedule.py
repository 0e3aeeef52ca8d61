"""DeepSeek-V4-Flash as published: config.json and every tensor's name, dtype and shape, by the formulas of its architecture."""
from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

Tensor = tuple[str, str, tuple[int, ...]]

CONFIG = {
    "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "vocab_size": 129280, "hidden_size": 4096,
    "num_hidden_layers": 43, "num_attention_heads": 64, "num_key_value_heads": 1, "head_dim": 512, "qk_rope_head_dim": 64,
    "q_lora_rank": 1024, "o_groups": 8, "o_lora_rank": 1024, "index_n_heads": 64, "index_head_dim": 128, "index_topk": 512,
    "compress_ratios": [0, 0] + [4, 128] * 20 + [4, 0], "sliding_window": 128, "rope_theta": 10000, "compress_rope_theta": 160000,
    "rope_scaling": {"type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 65536},
    "max_position_embeddings": 1048576, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 6,
    "moe_intermediate_size": 2048, "num_hash_layers": 3, "scoring_func": "sqrtsoftplus", "topk_method": "noaux_tc",
    "norm_topk_prob": True, "routed_scaling_factor": 1.5, "swiglu_limit": 10.0, "hc_mult": 4, "hc_sinkhorn_iters": 20,
    "hc_eps": 1e-6, "rms_norm_eps": 1e-6, "num_nextn_predict_layers": 1, "expert_dtype": "fp4", "bos_token_id": 0, "eos_token_id": 1,
    "tie_word_embeddings": False, "attention_bias": False, "hidden_act": "silu",
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "scale_fmt": "ue8m0", "weight_block_size": [128, 128],
                            "activation_scheme": "dynamic"},
}
D, INNER, EXPERTS, VOCAB = 4096, 2048, 256, 129280


def fp8(name: str, rows: int, cols: int) -> Iterator[Tensor]:
    yield name + ".weight", "F8_E4M3", (rows, cols)
    yield name + ".scale", "F8_E8M0", (-(-rows // 128), -(-cols // 128))


def fp4(name: str, rows: int, cols: int) -> Iterator[Tensor]:
    yield name + ".weight", "I8", (rows, cols // 2)
    yield name + ".scale", "F8_E8M0", (rows, cols // 32)


def compressor(name: str, ratio: int, width: int) -> Iterator[Tensor]:
    stored = 2 * width if ratio == 4 else width
    yield name + "ape", "F32", (ratio, stored)
    yield name + "wkv.weight", "BF16", (stored, D)
    yield name + "wgate.weight", "BF16", (stored, D)
    yield name + "norm.weight", "BF16", (width,)


def block(p: str, ratio: int, hashed: bool) -> Iterator[Tensor]:
    for site in ("attn", "ffn"):
        yield f"{p}{site}_norm.weight", "BF16", (D,)
        yield f"{p}hc_{site}_fn", "F32", (24, 4 * D)
        yield f"{p}hc_{site}_base", "F32", (24,)
        yield f"{p}hc_{site}_scale", "F32", (3,)
    a = p + "attn."
    yield a + "attn_sink", "F32", (64,)
    yield from fp8(a + "wq_a", 1024, D)
    yield from fp8(a + "wq_b", 32768, 1024)
    yield from fp8(a + "wkv", 512, D)
    yield from fp8(a + "wo_a", 8192, 4096)
    yield from fp8(a + "wo_b", D, 8192)
    yield a + "q_norm.weight", "BF16", (1024,)
    yield a + "kv_norm.weight", "BF16", (512,)
    if ratio:
        yield from compressor(a + "compressor.", ratio, 512)
    if ratio == 4:
        yield from fp8(a + "indexer.wq_b", 8192, 1024)
        yield a + "indexer.weights_proj.weight", "BF16", (64, D)
        yield from compressor(a + "indexer.compressor.", ratio, 128)
    f = p + "ffn."
    yield f + "gate.weight", "BF16", (EXPERTS, D)
    yield (f + "gate.tid2eid", "I64", (VOCAB, 6)) if hashed else (f + "gate.bias", "F32", (EXPERTS,))
    for expert, kind in [(f"experts.{e}.", fp4) for e in range(EXPERTS)] + [("shared_experts.", fp8)]:
        yield from kind(f + expert + "w1", INNER, D)
        yield from kind(f + expert + "w3", INNER, D)
        yield from kind(f + expert + "w2", D, INNER)


def head(p: str) -> Iterator[Tensor]:
    yield p + "hc_head_fn", "F32", (4, 4 * D)
    yield p + "hc_head_base", "F32", (4,)
    yield p + "hc_head_scale", "F32", (1,)
    yield p + "norm.weight", "BF16", (D,)


def tensors() -> Iterator[Tensor]:
    yield "embed.weight", "BF16", (VOCAB, D)
    yield "head.weight", "BF16", (VOCAB, D)
    yield from head("")
    for layer in range(43):
        yield from block(f"layers.{layer}.", CONFIG["compress_ratios"][layer], layer < 3)
    yield from block("mtp.0.", 0, False)
    yield from head("mtp.0.")
    yield from fp8("mtp.0.e_proj", D, D)
    yield from fp8("mtp.0.h_proj", D, D)
    yield "mtp.0.enorm.weight", "BF16", (D,)
    yield "mtp.0.hnorm.weight", "BF16", (D,)


def byte_count(tensor: Tensor) -> int:
    size = {"I64": 8, "F32": 4, "BF16": 2}.get(tensor[1], 1)
    for dim in tensor[2]:
        size *= dim
    return size


def write_sparse(folder: Path, shard_bytes: int = 3_500_000_000) -> tuple[int, int]:
    """The whole checkpoint with headers and holes instead of weights. Returns its tensors and their bytes."""
    (folder / "config.json").write_text(json.dumps(CONFIG))
    shards: list[list[Tensor]] = [[]]
    used = total = count = 0
    for tensor in tensors():
        size = byte_count(tensor)
        if used + size > shard_bytes and shards[-1]:
            shards.append([])
            used = 0
        shards[-1].append(tensor)
        used, total, count = used + size, total + size, count + 1
    index: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        header: dict[str, object] = {}
        at = 0
        for tensor in shard:
            end = at + byte_count(tensor)
            header[tensor[0]] = {"dtype": tensor[1], "shape": list(tensor[2]), "data_offsets": [at, end]}
            index[tensor[0]] = name
            at = end
        text = json.dumps(header, separators=(",", ":")).encode()
        with open(folder / name, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            file.truncate(8 + len(text) + at)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": index}))
    return count, total
