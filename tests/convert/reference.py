"""An independent reader of converted checkpoints: the safetensors library for the files, and a dequantizer written from
the published definitions. It shares no code with the C++ side and none of its tables.

Values are numpy float32, because that is what a loader computes: codes times scales, each product rounded once to
nearest even (numpy's float32 multiplication is IEEE's).
"""
from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

Array = np.ndarray[Any, Any]


@dataclass
class Tensor:
    dtype: str
    shape: list[int]
    data: bytes
    shard: str


def read_folder(folder: Path) -> dict[str, Tensor]:
    """All tensors of the shards that the index names."""
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    tensors: dict[str, Tensor] = {}
    for shard in sorted(set(index["weight_map"].values())):
        for name, entry in safetensors.deserialize((folder / shard).read_bytes()):
            assert name not in tensors, name
            tensors[name] = Tensor(entry["dtype"], list(entry["shape"]), bytes(entry["data"]), shard)
    assert {name: t.shard for name, t in tensors.items()} == index["weight_map"]
    return tensors


# ---- element types ----

def e2m1(code: int) -> float:
    """Sign, two exponent bits with bias 1, one mantissa bit; no special values."""
    exponent, mantissa = code >> 1 & 3, code & 1
    magnitude = mantissa * 0.5 if exponent == 0 else (1 + mantissa / 2) * 2.0 ** (exponent - 1)
    return -magnitude if code & 8 else magnitude


def e4m3(code: int) -> float:
    """Sign, four exponent bits with bias 7, three mantissa bits; no infinities, all ones is NaN."""
    exponent, mantissa = code >> 3 & 15, code & 7
    if code & 0x7F == 0x7F:
        return float("nan")
    magnitude = mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return -magnitude if code & 0x80 else magnitude


def e8m0(code: int) -> float:
    return float("nan") if code == 255 else 2.0 ** (code - 127)


E2M1 = np.array([e2m1(code) for code in range(16)], np.float32)
E4M3 = np.array([e4m3(code) for code in range(256)], np.float32)
E8M0 = np.array([e8m0(code) for code in range(256)], np.float64).astype(np.float32)


def floats(tensor: Tensor) -> Array:
    """Scales and unquantised weights."""
    raw = np.frombuffer(tensor.data, np.uint8)
    match tensor.dtype:
        case "F32":
            values = np.frombuffer(tensor.data, "<f4")
        case "BF16":
            values = (np.frombuffer(tensor.data, "<u2").astype(np.uint32) << 16).view(np.float32)
        case "F8_E8M0":
            values = E8M0[raw]
        case "F8_E4M3":
            values = E4M3[raw]
        case _:
            raise ValueError(tensor.dtype)
    return values.reshape(tensor.shape)


def nibbles(tensor: Tensor) -> Array:
    """Two codes a byte, the lower bits first; little-endian words are their bytes."""
    rows = tensor.shape[0]
    raw = np.frombuffer(tensor.data, np.uint8).reshape(rows, -1)
    return np.stack([raw & 15, raw >> 4], axis=-1).reshape(rows, -1)


def spread(scales: Array, rows: int, cols: int, block: tuple[int, int]) -> Array:
    return np.repeat(np.repeat(scales, block[0], axis=0)[:rows], block[1], axis=1)[:, :cols]


@dataclass
class Matrix:
    format: str
    values: Array            # float32 [rows, cols]
    block: tuple[int, int]   # of a scale; (0, 0) without


def matrix(tensors: dict[str, Tensor], stem: str) -> Matrix:
    """The layout tables of the formats' publishers, by the tensors that are there."""
    if packed := tensors.get(stem + ".weight_packed"):
        assert packed.dtype == "I32" and tensors[stem + ".weight_shape"].dtype == "I64"
        codes = nibbles(packed)
        assert np.frombuffer(tensors[stem + ".weight_shape"].data, "<i8").tolist() == list(codes.shape)
        scales = floats(tensors[stem + ".weight_scale"])
        assert scales.shape == (codes.shape[0], codes.shape[1] // 128)
        values = (codes.astype(np.float32) - np.float32(8)) * spread(scales, *codes.shape, (1, 128))
        return Matrix("int4", values, (1, 128))
    weight = tensors[stem + ".weight"]
    if weight.dtype in ("BF16", "F32"):
        return Matrix(weight.dtype.lower(), floats(weight), (0, 0))
    if stem + ".weight_scale_2" in tensors:
        assert weight.dtype == "U8" and tensors[stem + ".weight_scale"].dtype == "F8_E4M3"
        assert tensors[stem + ".weight_scale_2"].shape == [] and tensors[stem + ".input_scale"].shape == []
        codes = nibbles(weight)
        scales = spread(floats(tensors[stem + ".weight_scale"]), *codes.shape, (1, 16))
        return Matrix("nvfp4", E2M1[codes] * scales * floats(tensors[stem + ".weight_scale_2"]), (1, 16))
    scale = tensors.get(stem + ".scale") or tensors[stem + ".weight_scale"]
    if weight.dtype == "I8":
        assert scale.dtype == "F8_E8M0"
        codes = nibbles(weight)
        return Matrix("mxfp4", E2M1[codes] * spread(floats(scale), *codes.shape, (1, 32)), (1, 32))
    assert weight.dtype == "F8_E4M3"
    values = floats(weight)
    return Matrix("fp8", values * spread(floats(scale), *values.shape, (128, 128)), (128, 128))


def stems(tensors: dict[str, Tensor]) -> list[str]:
    """Of all matrices; vectors have one dimension, and the tables of integers and hc_* no .weight."""
    found = []
    for name, tensor in tensors.items():
        if (end := re.search(r"\.weight(_packed)?$", name)) and len(tensor.shape) == 2:
            found.append(name[: end.start()])
    return sorted(found)


# ---- errors, as the report defines them ----

@dataclass
class Error:
    values: int
    inexact_values: int
    blocks: int
    inexact_blocks: int
    squares: float
    norm: float
    worst: float
    worst_at: list[int]

    def relative_rms(self) -> float:
        return float(np.sqrt(self.squares / self.norm)) if self.norm else 0.0


def running_sum(values: Array) -> float:
    """Left to right in double, one rounding an addition."""
    return float(np.cumsum(values.reshape(-1))[-1])


def compare(source: Matrix, made: Matrix) -> Error:
    block = made.block if made.block[0] else source.block if source.block[0] else (1, made.values.shape[1])
    wanted, found = source.values.astype(np.float64), made.values.astype(np.float64)
    off = np.abs(found - wanted)
    rows, cols = off.shape
    padded = np.zeros((-(-rows // block[0]) * block[0], -(-cols // block[1]) * block[1]), bool)
    padded[:rows, :cols] = off != 0
    changed = padded.reshape(padded.shape[0] // block[0], block[0], -1, block[1]).any(axis=(1, 3))
    at = int(np.argmax(off))
    return Error(off.size, int((off != 0).sum()), changed.size, int(changed.sum()), running_sum(off * off),
                 running_sum(wanted * wanted), float(off.max()), [at // cols, at % cols] if off.max() else [0, 0])


# ---- the rules by which each format is encoded, once more ----

def bf16(values: Array) -> Array:
    """To nearest, ties to even; finite values."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16
    return bits.astype(np.uint32).view(np.float32)


def nearest(table: Array, values: Array) -> Array:
    """The table's code whose value is nearest, of two the even one. table: the non-negative half, ascending."""
    magnitude = np.abs(values).astype(np.float64)
    grid = table.astype(np.float64)
    upper = np.clip(np.searchsorted(grid, magnitude), 1, len(grid) - 1)
    below, above = magnitude - grid[upper - 1], grid[upper] - magnitude
    up = (above < below) | ((above == below) & (upper % 2 == 0))
    return np.where(up, upper, upper - 1)


def encode(format_name: str, values: Array, amax: float) -> Array:
    """What the rule of the format makes of the values. amax: of all matrices that share a global scale."""
    rows, cols = values.shape
    f32 = np.float32

    def group_amax(size: int) -> Array:
        return np.abs(values).reshape(rows, cols // size, size).max(axis=2)

    match format_name:
        case "bf16":
            return bf16(values)
        case "mxfp4":  # 2^ceil(log2(amax / 6))
            peak = np.maximum(group_amax(32).astype(np.float64), 6 * 2.0**-126)
            fraction, exponent = np.frexp(peak / 6)
            scales = np.ldexp(1.0, np.where(fraction == 0.5, exponent - 1, exponent))
            scale = spread(scales, rows, cols, (1, 32))
            return (np.sign(values) * E2M1[nearest(E2M1[:8], values / scale)] * scale).astype(f32)
        case "nvfp4":  # amax / (6 * 448), amax / (6 * global)
            top = f32(amax) / f32(2688)
            exact = np.clip(group_amax(16) / (f32(6) * top), 2.0**-9, 448)
            scales = E4M3[nearest(E4M3[:127], exact)]
            scales = np.where(group_amax(16) == 0, f32(1), scales)
            scale = spread(scales, rows, cols, (1, 16))
            codes = nearest(E2M1[:8], values / (scale * top))
            return np.sign(values) * (E2M1[codes] * scale * top)
        case "int4":  # amax / 7.5, in bf16
            scale = spread(bf16(group_amax(128) / f32(7.5)), rows, cols, (1, 128))
            scale = np.where(scale == 0, f32(1), scale)
            return np.clip(np.rint(values / scale), -8, 7).astype(f32) * scale
        case "fp8":  # the smallest power of two that does not saturate
            out = np.empty_like(values)
            for r in range(0, rows, 128):
                for c in range(0, cols, 128):
                    part = values[r : r + 128, c : c + 128]
                    fraction, exponent = np.frexp(np.abs(part).max() / 448.0)
                    scale = np.ldexp(1.0, exponent - 1 if fraction == 0.5 else exponent) if part.any() else 1.0
                    codes = nearest(E4M3[:127], part / scale)
                    out[r : r + 128, c : c + 128] = np.sign(part) * E4M3[codes] * scale
            return out
    raise ValueError(format_name)
