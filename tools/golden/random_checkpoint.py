"""Tiny random DeepSeek-V4 checkpoints, the same bytes as tests/golden/random_checkpoint.cpp makes.

The golden checkpoints are not committed: both programs regenerate them from a seed and compare SHA-256.

    python random_checkpoint.py a /tmp/checkpoint_a            # golden configuration a, published layout
    python random_checkpoint.py b /tmp/b --storage bf16 --spelling transformers

The rule (all integers 64-bit and unsigned, wrapping):

    splitmix64(x): x += 0x9E3779B97F4A7C15; x = (x ^ x>>30) * 0xBF58476D1CE4E5B9;
                   x = (x ^ x>>27) * 0x94D049BB133111EB; return x ^ x>>31
    key(name)      = fnv1a64(name) ^ splitmix64(seed), name as DeepSeek publishes it, whatever is written
    draw(name, i)  = splitmix64(key(name) + i * 0x9E3779B97F4A7C15), i = row-major element index

    normal   n = sum of the draw's four 16-bit fields - 131070, |n| <= 131070, standard deviation 65536/sqrt(3);
             value = fp32(fp32(n) * fp32(std * 1.7320508075688772 / 65536)), then one fp32 addition of `offset`
             where that is not 0; std is a double, sqrt and division are the correctly rounded ones. BF16 tensors
             round the fp32 value to nearest even.
    E4M3     one draw a byte: sign = bit 63, mantissa = bits 62..60, exponent = 15 - (leading zeros of the 16-bit field
             at bits 47..32), at least 0; the NaN code 0x7F/0xFF becomes 0x7E/0xFE. Magnitudes come out nearly uniform
             below 480.
    E2M1     one draw a byte: its low 8 bits, that is two codes (low nibble = even column).
    E8M0     byte = 127 + base + {-1, 0, 0, +1}[draw & 3]. base is the integer nearest to log2(x),
             x = gain / (sqrt(in) * rms), rms = 350 for E4M3 and 3.65625 for E2M1 (code rms times the jitter's 1.25): with
             x = m * 2^e, 0.5 <= m < 1, base = e if m > 0.70710678 else e - 1.
    tid2eid  row v: a partial Fisher-Yates shuffle of 0..E-1: for j < k swap slot j with slot j + draw(v*k + j) % (E-j).

File form: tensors are dealt to shards in the order of `plan`, a new shard beginning when the next tensor would pass
max_shard_bytes; inside a shard larger element types come first, else that order. Header: compact JSON beginning with
"__metadata__":{"format":"pt"}, padded with spaces to a multiple of 8.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import math
import pathlib
import struct

import numpy as np

GAMMA = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1
DTYPE_BYTES = {"I64": 8, "F32": 4, "BF16": 2, "F8_E4M3": 1, "F8_E8M0": 1, "I8": 1}


@dataclasses.dataclass(frozen=True)
class Spec:
    """Dimensions and seed of one random checkpoint; field for field the C++ RandomCheckpointSpec."""

    seed: int = 1
    vocab_size: int = 320
    hidden_size: int = 128
    num_attention_heads: int = 4
    q_lora_rank: int = 128
    o_groups: int = 2
    o_lora_rank: int = 64
    index_n_heads: int = 4
    index_topk: int = 8
    compress_ratios: tuple[int, ...] = (0, 4, 128)  # one a backbone layer; the MTP block's 0 is added when written
    n_routed_experts: int = 8
    num_experts_per_tok: int = 2
    moe_intermediate_size: int = 128
    num_hash_layers: int = 1
    mtp_layers: int = 1
    dspark_stages: int = 0  # > 0: a DSpark drafter in place of the MTP block; mtp_layers is then what config.json says
    dspark_block_size: int = 5
    dspark_markov_rank: int = 32
    dspark_noise_token_id: int = 2
    dspark_target_layer_ids: tuple[int, ...] = ()
    routed_scaling_factor: float = 1.5
    swiglu_limit: float = 2.0
    hc_sinkhorn_iters: int = 20
    hc_eps: float = 1e-6
    rms_norm_eps: float = 1e-6
    max_shard_bytes: int = 4 << 20
    storage: str = "published"  # published | bf16 | f32
    spelling: str = "deepseek"  # deepseek | transformers

    HEAD_DIM = 512
    ROPE_DIM = 64
    INDEX_HEAD_DIM = 128
    HC_MULT = 4

    @property
    def layers(self) -> int:
        return len(self.compress_ratios)


GOLDEN = {
    # Ratios as in Flash; hash routing in sliding and CSA layers; FP8 blocks 2 wide and more than 2 high.
    "a": Spec(seed=20260401, hidden_size=256, num_attention_heads=4, q_lora_rank=256, o_groups=2, o_lora_rank=128,
              index_n_heads=8, index_topk=16, compress_ratios=(0, 0, 4, 128, 4, 128), n_routed_experts=16,
              num_experts_per_tok=6, num_hash_layers=3, routed_scaling_factor=1.5, swiglu_limit=2.0),
    # Ratios as in Pro: no sliding layer, hash routing in HCA and CSA layers, more heads and groups.
    "b": Spec(seed=20260402, hidden_size=128, num_attention_heads=8, q_lora_rank=128, o_groups=4, o_lora_rank=128,
              index_n_heads=16, index_topk=24, compress_ratios=(128, 128, 4, 128, 4, 128, 4), n_routed_experts=12,
              num_experts_per_tok=3, num_hash_layers=3, routed_scaling_factor=2.5, swiglu_limit=1.5),
    # Numbers that make a wrong epsilon or a wrong number of rounds visible; no hash layer; one head a group.
    "c": Spec(seed=20260403, hidden_size=128, num_attention_heads=4, q_lora_rank=128, o_groups=4, o_lora_rank=64,
              index_n_heads=8, index_topk=8, compress_ratios=(4, 0, 128, 4), n_routed_experts=8, num_experts_per_tok=2,
              num_hash_layers=0, routed_scaling_factor=1.25, swiglu_limit=1.0, hc_sinkhorn_iters=5, hc_eps=1e-3,
              rms_norm_eps=1e-5),
}

# With a DSpark drafter: taps after layers of each kind, in another order than the layers would give if counted from 0; rings that
# fill; the sensitive constants of c.
DSPARK = {
    "d": Spec(seed=20260404, hidden_size=128, num_attention_heads=4, q_lora_rank=128, o_groups=2, o_lora_rank=64,
              index_n_heads=8, index_topk=8, compress_ratios=(0, 4, 128, 4), n_routed_experts=8, num_experts_per_tok=2,
              num_hash_layers=1, routed_scaling_factor=1.25, swiglu_limit=1.0, hc_sinkhorn_iters=5, hc_eps=1e-3,
              rms_norm_eps=1e-5, dspark_stages=3, dspark_noise_token_id=300, dspark_target_layer_ids=(1, 2, 3)),
}


# ---------------------------------------------------------------- draws
def splitmix64(x: np.ndarray | int) -> np.ndarray:
    z = np.asarray(x, dtype=np.uint64) + np.uint64(GAMMA)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def fnv1a64(name: str) -> int:
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return h


def draws(name: str, seed: int, count: int) -> np.ndarray:
    """The 64-bit draws of elements 0..count-1 of a tensor."""
    with np.errstate(over="ignore"):
        key = np.uint64(fnv1a64(name)) ^ splitmix64(seed)
        return splitmix64(key + np.arange(count, dtype=np.uint64) * np.uint64(GAMMA))


def normal(name: str, seed: int, shape: tuple[int, ...], std: float, offset: float) -> np.ndarray:
    r = draws(name, seed, math.prod(shape))
    n = sum(((r >> np.uint64(16 * i)) & np.uint64(0xFFFF)).astype(np.int64) for i in range(4)) - 131070
    v = n.astype(np.float32) * np.float32(std * 1.7320508075688772 / 65536.0)
    if offset != 0.0:
        v = v + np.float32(offset)
    return v.reshape(shape)


def bf16_bits(v: np.ndarray) -> np.ndarray:
    """Round finite fp32 to bf16, nearest even; returns uint16."""
    u = np.ascontiguousarray(v, dtype=np.float32).view(np.uint32)
    return ((u + np.uint32(0x7FFF) + ((u >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)


def bf16_value(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def e4m3_codes(name: str, seed: int, shape: tuple[int, ...]) -> np.ndarray:
    r = draws(name, seed, math.prod(shape))
    field = ((r >> np.uint64(32)) & np.uint64(0xFFFF)).astype(np.float64)
    # frexp of a nonzero 16-bit integer gives its bit length; 15 - leading zeros = bit length - 1
    exponent = np.maximum(np.frexp(field)[1] - 1, 0).astype(np.uint8)
    code = ((r >> np.uint64(63)).astype(np.uint8) << 7) | (exponent << 3) | ((r >> np.uint64(60)) & np.uint64(7)).astype(np.uint8)
    code = np.where((code & 0x7F) == 0x7F, code - 1, code).astype(np.uint8)
    return code.reshape(shape)


def e8m0_bytes(name: str, seed: int, shape: tuple[int, ...], gain: float, fan_in: int, rms: float) -> np.ndarray:
    mantissa, exponent = math.frexp(gain / (math.sqrt(fan_in) * rms))
    base = exponent if mantissa > 0.70710678 else exponent - 1
    jitter = np.array([-1, 0, 0, 1])[(draws(name, seed, math.prod(shape)) & np.uint64(3)).astype(np.int64)]
    return (127 + base + jitter).astype(np.uint8).reshape(shape)


def tid2eid(name: str, seed: int, vocab: int, k: int, experts: int) -> np.ndarray:
    r = draws(name, seed, vocab * k).reshape(vocab, k)
    table = np.tile(np.arange(experts, dtype=np.int64), (vocab, 1))
    rows = np.arange(vocab)
    for j in range(k):
        other = j + (r[:, j] % np.uint64(experts - j)).astype(np.int64)
        table[rows, j], table[rows, other] = table[rows, other].copy(), table[rows, j].copy()
    return table[:, :k].copy()


# ---------------------------------------------------------------- scalar formats
def _e4m3_table() -> np.ndarray:
    code = np.arange(256)
    e, m = (code >> 3) & 15, code & 7
    v = np.where(e == 0, m * 2.0 ** -9, (8 + m) * 2.0 ** (e - 10.0))
    v = np.where((code & 127) == 127, np.nan, v)
    return np.where(code >= 128, -v, v).astype(np.float32)


E4M3 = _e4m3_table()
E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0.0, -.5, -1, -1.5, -2, -3, -4, -6], dtype=np.float32)


def dequantise_fp8(codes: np.ndarray, scale: np.ndarray) -> np.ndarray:
    s = np.exp2(scale.astype(np.float64) - 127).astype(np.float32)
    s = np.repeat(np.repeat(s, 128, 0), 128, 1)[:codes.shape[0], :codes.shape[1]]
    return E4M3[codes] * s


def dequantise_fp4(packed: np.ndarray, scale: np.ndarray) -> np.ndarray:
    v = np.stack((E2M1[packed & 15], E2M1[packed >> 4]), -1).reshape(packed.shape[0], -1)
    return v * np.repeat(np.exp2(scale.astype(np.float64) - 127).astype(np.float32), 32, 1)


# ---------------------------------------------------------------- the list of tensors
@dataclasses.dataclass(frozen=True)
class Plan:
    """One logical weight: name without .weight/.scale for FP8 and FP4 matrices, shape in elements."""

    kind: str  # fp8 | fp4 | bf16 | f32 | tid2eid
    name: str
    shape: tuple[int, ...]
    gain: float = 0.0  # fp8, fp4: output rms for an input of rms 1; bf16, f32: standard deviation
    offset: float = 0.0


def _attention(s: Spec, p: str, ratio: int) -> list[Plan]:
    d, heads, hd = s.hidden_size, s.num_attention_heads, Spec.HEAD_DIM
    out = [
        Plan("f32", p + "attn_sink", (heads,), 1.5),
        Plan("fp8", p + "wq_a", (s.q_lora_rank, d), 1.0),
        Plan("bf16", p + "q_norm.weight", (s.q_lora_rank,), 0.25, 1.0),
        Plan("fp8", p + "wq_b", (heads * hd, s.q_lora_rank), 1.0),
        Plan("fp8", p + "wkv", (hd, d), 1.0),
        Plan("bf16", p + "kv_norm.weight", (hd,), 0.25, 1.5),
        Plan("fp8", p + "wo_a", (s.o_groups * s.o_lora_rank, heads * hd // s.o_groups), 2.0),
        Plan("fp8", p + "wo_b", (d, s.o_groups * s.o_lora_rank), 1.0),
    ]
    if ratio:
        out += _compressor(p + "compressor.", d, hd, ratio)
    if ratio == 4:
        q = p + "indexer."
        out += [Plan("fp8", q + "wq_b", (s.index_n_heads * Spec.INDEX_HEAD_DIM, s.q_lora_rank), 1.0),
                Plan("bf16", q + "weights_proj.weight", (s.index_n_heads, d), 1.0 / math.sqrt(d))]
        out += _compressor(q + "compressor.", d, Spec.INDEX_HEAD_DIM, ratio)
    return out


def _compressor(p: str, d: int, width: int, ratio: int) -> list[Plan]:
    rows = 2 * width if ratio == 4 else width
    return [
        Plan("f32", p + "ape", (ratio, rows), 0.75),
        Plan("bf16", p + "wkv.weight", (rows, d), 1.0 / math.sqrt(d)),
        Plan("bf16", p + "wgate.weight", (rows, d), 1.5 / math.sqrt(d)),
        Plan("bf16", p + "norm.weight", (width,), 0.25, 1.5),
    ]


def _ffn(s: Spec, p: str, hashed: bool) -> list[Plan]:
    d, inner = s.hidden_size, s.moe_intermediate_size
    out = [Plan("bf16", p + "gate.weight", (s.n_routed_experts, d), 1.0 / math.sqrt(d))]
    if hashed:
        out += [Plan("tid2eid", p + "gate.tid2eid", (s.vocab_size, s.num_experts_per_tok))]
    else:
        out += [Plan("f32", p + "gate.bias", (s.n_routed_experts,), 0.2)]
    for e in range(s.n_routed_experts):
        q = f"{p}experts.{e}."
        out += [Plan("fp4", q + "w1", (inner, d), 1.5), Plan("fp4", q + "w2", (d, inner), 1.0),
                Plan("fp4", q + "w3", (inner, d), 1.5)]
    q = p + "shared_experts."
    return out + [Plan("fp8", q + "w1", (inner, d), 1.5), Plan("fp8", q + "w2", (d, inner), 1.0),
                  Plan("fp8", q + "w3", (inner, d), 1.5)]


def _hc(s: Spec, p: str, rows: int, scales: int) -> list[Plan]:
    wide = Spec.HC_MULT * s.hidden_size
    return [Plan("f32", p + "fn", (rows, wide), 1.0 / math.sqrt(wide)), Plan("f32", p + "base", (rows,), 0.75),
            Plan("f32", p + "scale", (scales,), 0.25, 1.0)]


def _block(s: Spec, p: str, ratio: int, hashed: bool) -> list[Plan]:
    d, mix = s.hidden_size, (2 + Spec.HC_MULT) * Spec.HC_MULT
    return ([Plan("bf16", p + "attn_norm.weight", (d,), 0.25, 1.0)] + _hc(s, p + "hc_attn_", mix, 3) + _attention(s, p + "attn.", ratio)
            + [Plan("bf16", p + "ffn_norm.weight", (d,), 0.25, 1.0)] + _hc(s, p + "hc_ffn_", mix, 3) + _ffn(s, p + "ffn.", hashed))


def _dspark(s: Spec) -> list[Plan]:
    d, rank, last = s.hidden_size, s.dspark_markov_rank, f"mtp.{s.dspark_stages - 1}."
    out = [Plan("fp8", "mtp.0.main_proj", (d, len(s.dspark_target_layer_ids) * d), 1.0),
           Plan("bf16", "mtp.0.main_norm.weight", (d,), 0.25, 1.0)]
    for stage in range(s.dspark_stages):
        out += _block(s, f"mtp.{stage}.", 0, False)
    out += [Plan("bf16", last + "norm.weight", (d,), 0.25, 1.0)] + _hc(s, last + "hc_head_", Spec.HC_MULT, 1)
    return out + [Plan("bf16", last + "markov_head.markov_w1.weight", (s.vocab_size, rank), 1.0),
                  Plan("bf16", last + "markov_head.markov_w2.weight", (s.vocab_size, rank), 2.0 / math.sqrt(rank)),
                  Plan("bf16", last + "confidence_head.proj.weight", (1, d + rank), 1.0 / math.sqrt(d))]


def plan(s: Spec) -> list[Plan]:
    """Every weight of the checkpoint in file order."""
    d = s.hidden_size
    out = [Plan("bf16", "embed.weight", (s.vocab_size, d), 1.0)]
    for layer, ratio in enumerate(s.compress_ratios):
        out += _block(s, f"layers.{layer}.", ratio, layer < s.num_hash_layers)
    out += [Plan("bf16", "norm.weight", (d,), 0.25, 1.0)] + _hc(s, "hc_head_", Spec.HC_MULT, 1)
    out += [Plan("bf16", "head.weight", (s.vocab_size, d), 3.0 / math.sqrt(d))]
    if s.dspark_stages > 0:
        return out + _dspark(s)
    for m in range(s.mtp_layers):
        p = f"mtp.{m}."
        out += [Plan("bf16", p + "enorm.weight", (d,), 0.25, 1.0), Plan("bf16", p + "hnorm.weight", (d,), 0.25, 1.0),
                Plan("fp8", p + "e_proj", (d, d), 1.0), Plan("fp8", p + "h_proj", (d, d), 1.0)]
        out += _block(s, p, 0, False)
        out += [Plan("bf16", p + "norm.weight", (d,), 0.25, 1.0)] + _hc(s, p + "hc_head_", Spec.HC_MULT, 1)
    return out


@dataclasses.dataclass
class Tensor:
    name: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes


def _quantised(s: Spec, w: Plan) -> tuple[np.ndarray, np.ndarray]:
    rows, cols = w.shape
    if w.kind == "fp8":
        codes = e4m3_codes(w.name + ".weight", s.seed, w.shape)
        return codes, e8m0_bytes(w.name + ".scale", s.seed, (-(-rows // 128), -(-cols // 128)), w.gain, cols, 350.0)
    codes = (draws(w.name + ".weight", s.seed, rows * cols // 2) & np.uint64(255)).astype(np.uint8).reshape(rows, cols // 2)
    return codes, e8m0_bytes(w.name + ".scale", s.seed, (rows, cols // 32), w.gain, cols, 3.65625)


def value(s: Spec, w: Plan) -> np.ndarray:
    """The weight's exact value, fp32 (tid2eid: int64)."""
    if w.kind == "tid2eid":
        return tid2eid(w.name, s.seed, s.vocab_size, s.num_experts_per_tok, s.n_routed_experts)
    if w.kind in ("fp8", "fp4"):
        codes, scale = _quantised(s, w)
        return dequantise_fp8(codes, scale) if w.kind == "fp8" else dequantise_fp4(codes, scale)
    v = normal(w.name, s.seed, w.shape, w.gain, w.offset)
    return bf16_value(bf16_bits(v)) if w.kind == "bf16" else v


def values(s: Spec) -> dict[str, np.ndarray]:
    """Published name -> exact value of every weight; what an fp32 oracle computes with."""
    return {w.name + (".weight" if w.kind in ("fp8", "fp4") else ""): value(s, w) for w in plan(s)}


def _plain(s: Spec, name: str, v: np.ndarray, kind: str) -> Tensor:
    """A weight written without quantisation."""
    if v.dtype == np.int64:
        return Tensor(name, "I64", v.shape, v.tobytes())
    if s.storage == "f32" or kind == "f32":
        return Tensor(name, "F32", v.shape, v.tobytes())
    bits = bf16_bits(v)
    assert np.array_equal(bf16_value(bits).view(np.uint32), v.view(np.uint32)), f"{name} is not exact in bf16"
    return Tensor(name, "BF16", v.shape, bits.tobytes())


def tensors(s: Spec) -> list[Tensor]:
    out: list[Tensor] = []
    stacked: dict[str, list[np.ndarray]] = {}
    if s.spelling == "transformers" and s.storage == "published":
        raise ValueError("the transformers spelling stacks experts, which has no published FP4 form")
    for w in plan(s):
        if s.storage == "published" and w.kind in ("fp8", "fp4"):
            codes, scale = _quantised(s, w)
            out.append(Tensor(w.name + ".weight", "F8_E4M3" if w.kind == "fp8" else "I8", codes.shape, codes.tobytes()))
            out.append(Tensor(w.name + ".scale", "F8_E8M0", scale.shape, scale.tobytes()))
            continue
        name = w.name + (".weight" if w.kind in ("fp8", "fp4") else "")
        if s.spelling == "deepseek":
            out.append(_plain(s, name, value(s, w), w.kind))
        elif not name.startswith("mtp."):
            new = transformers_name(name)
            if ".experts." not in new:
                out.append(_plain(s, new, value(s, w), w.kind))
                continue
            # Experts come in order w1, w2, w3 of each; one stacked pair is complete after the layer's last w3.
            base = new[:new.index("experts.") + 8]
            stacked.setdefault(base, []).append(value(s, w))
            if len(stacked[base]) == 3 * s.n_routed_experts:
                m = stacked.pop(base)
                gate_up = np.stack([np.concatenate((m[i], m[i + 2])) for i in range(0, len(m), 3)])
                out.append(_plain(s, base + "gate_up_proj", gate_up, "fp4"))
                out.append(_plain(s, base + "down_proj", np.stack(m[1::3]), "fp4"))
    return out


def transformers_name(name: str) -> str:
    """The transformers spelling of a published weight name; routed experts keep their number and are stacked by the caller."""
    top = {"embed.weight": "model.embed_tokens.weight", "head.weight": "lm_head.weight", "norm.weight": "model.norm.weight"}
    if name in top:
        return top[name]
    if name.startswith("hc_head_"):
        return "model.hc_head.hc_" + name[8:]
    _, layer, rest = name.split(".", 2)
    if rest.startswith("attn.indexer.compressor."):
        rest = "self_attn.compressor.indexer." + _COMPRESSOR[rest[24:]]
    elif rest.startswith("attn.indexer."):
        rest = "self_attn.compressor.indexer." + _INDEXER[rest[13:]]
    elif rest.startswith("attn.compressor."):
        rest = "self_attn.compressor." + _COMPRESSOR[rest[16:]]
    elif rest.startswith("attn."):
        rest = "self_attn." + _ATTENTION[rest[5:]]
    elif rest.startswith("ffn.shared_experts."):
        rest = "mlp.shared_experts." + {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}[rest[19:21]] + ".weight"
    elif rest == "ffn.gate.bias":
        rest = "mlp.gate.e_score_correction_bias"
    elif rest.startswith("ffn."):
        rest = "mlp." + rest[4:]
    elif rest.startswith("hc_attn_") or rest.startswith("hc_ffn_"):
        site, part = rest[3:].split("_")
        rest = f"{site}_hc.{part}"
    else:
        rest = {"attn_norm.weight": "input_layernorm.weight", "ffn_norm.weight": "post_attention_layernorm.weight"}[rest]
    return f"model.layers.{layer}.{rest}"


_COMPRESSOR = {"ape": "position_bias", "wkv.weight": "kv_proj.weight", "wgate.weight": "gate_proj.weight", "norm.weight": "kv_norm.weight"}
_INDEXER = {"wq_b.weight": "q_b_proj.weight", "weights_proj.weight": "scorer.weights_proj.weight"}
_ATTENTION = {"attn_sink": "sinks", "wq_a.weight": "q_a_proj.weight", "q_norm.weight": "q_a_norm.weight", "wq_b.weight": "q_b_proj.weight",
              "wkv.weight": "kv_proj.weight", "kv_norm.weight": "kv_norm.weight", "wo_a.weight": "o_a_proj.weight",
              "wo_b.weight": "o_b_proj.weight"}


# ---------------------------------------------------------------- config and files
def config(s: Spec) -> list[tuple[str, object]]:
    """config.json under the published keys, in file order."""
    out: list[tuple[str, object]] = [
        ("architectures", ["DeepseekV4ForCausalLM"]),
        ("attention_bias", False),
        ("attention_dropout", 0.0),
        ("bos_token_id", 0),
        ("compress_ratios", list(s.compress_ratios) + [0] * (s.dspark_stages or s.mtp_layers)),
        ("compress_rope_theta", 160000),
        ("eos_token_id", 1),
    ]
    if s.dspark_stages > 0:
        out[-1:-1] = [("dspark_block_size", s.dspark_block_size), ("dspark_markov_rank", s.dspark_markov_rank),
                      ("dspark_noise_token_id", s.dspark_noise_token_id), ("dspark_target_layer_ids", list(s.dspark_target_layer_ids))]
    if s.storage == "published":
        out += [("expert_dtype", "fp4")]
    out += [
        ("hc_eps", s.hc_eps),
        ("hc_mult", Spec.HC_MULT),
        ("hc_sinkhorn_iters", s.hc_sinkhorn_iters),
        ("head_dim", Spec.HEAD_DIM),
        ("hidden_act", "silu"),
        ("hidden_size", s.hidden_size),
        ("index_head_dim", Spec.INDEX_HEAD_DIM),
        ("index_n_heads", s.index_n_heads),
        ("index_topk", s.index_topk),
        ("max_position_embeddings", 1048576),
        ("model_type", "deepseek_v4"),
        ("moe_intermediate_size", s.moe_intermediate_size),
        ("n_routed_experts", s.n_routed_experts),
        ("n_shared_experts", 1),
        ("norm_topk_prob", True),
        ("num_attention_heads", s.num_attention_heads),
        ("num_experts_per_tok", s.num_experts_per_tok),
        ("num_hash_layers", s.num_hash_layers),
        ("num_hidden_layers", s.layers),
        ("num_key_value_heads", 1),
        ("num_nextn_predict_layers", s.mtp_layers),
        ("o_groups", s.o_groups),
        ("o_lora_rank", s.o_lora_rank),
        ("q_lora_rank", s.q_lora_rank),
        ("qk_rope_head_dim", Spec.ROPE_DIM),
    ]
    if s.storage == "published":
        out += [("quantization_config", {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "scale_fmt": "ue8m0",
                                         "weight_block_size": [128, 128]})]
    out += [
        ("rms_norm_eps", s.rms_norm_eps),
        ("rope_scaling", {"beta_fast": 32, "beta_slow": 1, "factor": 16, "original_max_position_embeddings": 65536, "type": "yarn"}),
        ("rope_theta", 10000),
        ("routed_scaling_factor", s.routed_scaling_factor),
        ("scoring_func", "sqrtsoftplus"),
        ("sliding_window", 128),
        ("swiglu_limit", s.swiglu_limit),
        ("tie_word_embeddings", False),
        ("topk_method", "noaux_tc"),
        ("torch_dtype", "float32" if s.storage == "f32" else "bfloat16"),
        ("vocab_size", s.vocab_size),
    ]
    return out


def _json_value(v: object) -> str:
    """JSON in one line; a float is printed with %g and keeps a point or an exponent."""
    if isinstance(v, float):
        text = "%g" % v
        return text if "." in text or "e" in text else text + ".0"
    if isinstance(v, list):
        return "[" + ", ".join(_json_value(x) for x in v) + "]"
    if isinstance(v, dict):
        return "{" + ", ".join(f'"{k}": {_json_value(x)}' for k, x in v.items()) + "}"
    return json.dumps(v)


def config_text(s: Spec) -> str:
    return "{\n" + ",\n".join(f'  "{k}": {_json_value(v)}' for k, v in config(s)) + "\n}\n"


def safetensors_bytes(group: list[Tensor]) -> bytes:
    order = sorted(group, key=lambda t: -DTYPE_BYTES[t.dtype])  # stable: list order among equals
    entries, at = ['"__metadata__":{"format":"pt"}'], 0
    for t in order:
        shape = ",".join(str(x) for x in t.shape)
        entries.append(f'"{t.name}":{{"dtype":"{t.dtype}","shape":[{shape}],"data_offsets":[{at},{at + len(t.data)}]}}')
        at += len(t.data)
    header = "{" + ",".join(entries) + "}"
    header += " " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header.encode() + b"".join(t.data for t in order)


def shards(s: Spec) -> list[list[Tensor]]:
    out: list[list[Tensor]] = [[]]
    used = 0
    for t in tensors(s):
        if out[-1] and used + len(t.data) > s.max_shard_bytes:
            out.append([])
            used = 0
        out[-1].append(t)
        used += len(t.data)
    return out


def files(s: Spec) -> dict[str, bytes]:
    """File name -> content of the whole folder."""
    groups = shards(s)
    names = [f"model-{i + 1:05d}-of-{len(groups):05d}.safetensors" for i in range(len(groups))]
    out = {"config.json": config_text(s).encode()}
    total = sum(len(t.data) for g in groups for t in g)
    lines = [f'    "{t.name}": "{n}"' for n, g in zip(names, groups) for t in g]
    index = f'{{\n  "metadata": {{"total_size": {total}}},\n  "weight_map": {{\n' + ",\n".join(lines) + "\n  }\n}\n"
    out["model.safetensors.index.json"] = index.encode()
    out.update({n: safetensors_bytes(g) for n, g in zip(names, groups)})
    return out


def sha256(s: Spec) -> dict[str, str]:
    return {name: hashlib.sha256(data).hexdigest() for name, data in files(s).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Write one golden checkpoint.")
    parser.add_argument("config", choices=sorted(GOLDEN | DSPARK))
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--storage", choices=["published", "bf16", "f32"], default="published")
    parser.add_argument("--spelling", choices=["deepseek", "transformers"], default="deepseek")
    args = parser.parse_args()
    spec = dataclasses.replace((GOLDEN | DSPARK)[args.config], storage=args.storage, spelling=args.spelling)
    args.folder.mkdir(parents=True, exist_ok=True)
    for name, data in files(spec).items():
        (args.folder / name).write_bytes(data)
        print(f"{len(data):10d}  {hashlib.sha256(data).hexdigest()}  {name}")


if __name__ == "__main__":
    main()
