"""Rounding to the number formats of the release. Every function takes fp32 and returns fp32 values on the format's grid.

    python -m port.quantisers        # in tools/golden: exhaustive self tests, also against ml_dtypes

A scale is a power of two, so x / scale and q * scale are exact, and what a cache stores as codes and scales is bit for bit
what these functions return.
"""

from __future__ import annotations

import math

import torch


def bf16(x: torch.Tensor) -> torch.Tensor:
    """Nearest even."""
    return x.to(torch.bfloat16).to(torch.float32)


def _round_to_grid(x: torch.Tensor, mantissa_bits: int, min_exponent: int) -> torch.Tensor:
    """Nearest even on a grid with `mantissa_bits` stored bits and subnormals below 2^min_exponent."""
    exponent = (torch.frexp(x).exponent - 1).clamp(min=min_exponent)  # |x| in [2^e, 2^(e+1)), or smaller
    quantum = torch.ldexp(torch.ones_like(x), exponent - mantissa_bits)
    return torch.round(x / quantum) * quantum


def e4m3(x: torch.Tensor) -> torch.Tensor:
    """E4M3 (fn): largest value 448, saturating, subnormals of 2^-9."""
    return _round_to_grid(x.clamp(-448.0, 448.0), 3, -6)


def e2m1(x: torch.Tensor) -> torch.Tensor:
    """E2M1: 0, .5, 1, 1.5, 2, 3, 4, 6 and their negatives, saturating; a tie goes to the even code."""
    return _round_to_grid(x.clamp(-6.0, 6.0), 1, 0)


def power_of_two_scale(amax: torch.Tensor, largest: float) -> torch.Tensor:
    """2^ceil(log2(amax / largest)) from the bits of fp32(amax * fp32(1 / largest)); amax > 0, ratio normal (both floors below see to it)."""
    ratio = amax * torch.tensor(1.0 / largest, dtype=torch.float32)
    bits = ratio.contiguous().view(torch.int32)
    exponent = (bits >> 23) - 127 + ((bits & 0x7FFFFF) != 0).to(torch.int32)
    return torch.ldexp(torch.ones_like(ratio), exponent)


def _blocks(x: torch.Tensor, size: int) -> torch.Tensor:
    if x.shape[-1] % size:
        raise ValueError(f"{x.shape[-1]} channels are not whole blocks of {size}")
    return x.unflatten(-1, (-1, size))


def fp8_blocks(x: torch.Tensor, size: int) -> torch.Tensor:
    """E4M3 with one scale per `size` consecutive channels; amax floor 1e-4. Size 128: activations, 64: cached rows."""
    b = _blocks(x, size)
    scale = power_of_two_scale(b.abs().amax(-1, keepdim=True).clamp(min=1e-4), 448.0)
    return (e4m3(b / scale) * scale).flatten(-2)


def fp4_blocks(x: torch.Tensor, size: int = 32) -> torch.Tensor:
    """E2M1 with one scale per `size` consecutive channels; amax floor 6 * 2^-126."""
    b = _blocks(x, size)
    scale = power_of_two_scale(b.abs().amax(-1, keepdim=True).clamp(min=6 * 2.0 ** -126), 6.0)
    return (e2m1(b / scale) * scale).flatten(-2)


def hadamard(x: torch.Tensor) -> torch.Tensor:
    """Walsh-Hadamard transform of the last axis in natural (Sylvester) order, times n^-0.5, in fp32."""
    n = x.shape[-1]
    shape, width = x.shape, 1
    while width < n:
        pair = x.reshape(*shape[:-1], n // (2 * width), 2, width)
        x = torch.stack((pair[..., 0, :] + pair[..., 1, :], pair[..., 0, :] - pair[..., 1, :]), -2).reshape(shape)
        width *= 2
    return x * torch.tensor(n ** -0.5, dtype=torch.float32)


# ---------------------------------------------------------------- self tests
def _nearest(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    """Nearest grid value by search; grid ascending from 0, its index is the code, a tie goes to the even code."""
    magnitude = x.abs().clamp(max=grid[-1].item()).double()
    distance = (magnitude[:, None] - grid.double()).abs()
    best = distance.min(-1, keepdim=True).values
    codes = torch.arange(len(grid))
    candidate = torch.where(distance == best, codes, -1)
    even = torch.where((candidate >= 0) & (candidate % 2 == 0), candidate, -1).max(-1).values
    code = torch.where(even >= 0, even, candidate.max(-1).values)
    return torch.copysign(grid[code], x)


def self_test() -> None:
    import ml_dtypes
    import numpy as np

    every_bf16 = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(torch.bfloat16).to(torch.float32)
    every_bf16 = every_bf16[every_bf16.isfinite()]
    grids = {"e4m3": (e4m3, torch.tensor([(m * 2.0 ** -9) if e == 0 else (8 + m) * 2.0 ** (e - 10) for e in range(16) for m in range(8)][:-1]),
                      ml_dtypes.float8_e4m3fn, 448.0),
             "e2m1": (e2m1, torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6]), ml_dtypes.float4_e2m1fn, 6.0)}
    for name, (function, grid, dtype, largest) in grids.items():
        middle = (grid[1:] + grid[:-1]) / 2
        cases = torch.cat([every_bf16] + [s * t for s in (1, -1) for t in
                                          (grid, middle, torch.nextafter(middle, middle * 2), torch.nextafter(middle, middle * 0))])
        got = function(cases)
        assert torch.equal(got, _nearest(cases, grid)), name
        library = cases.clamp(-largest, largest).numpy().astype(dtype).astype(np.float32)
        assert np.array_equal(got.numpy(), library), f"{name} against ml_dtypes"
    normal = every_bf16[every_bf16 >= 2.0 ** -110]  # so that the ratio is a normal number
    for largest in (448.0, 6.0):
        scale = power_of_two_scale(normal, largest)
        assert bool((normal <= largest * scale).all()) and bool((normal > largest / 2 * scale).all()), largest
        exact = torch.tensor([2.0 ** math.ceil(math.log2(v / largest)) for v in (1.0, 448.0, 449.0, 3.0, 6.0, 1e-4, 7.0)])
        assert torch.equal(power_of_two_scale(torch.tensor([1.0, 448.0, 449.0, 3.0, 6.0, 1e-4, 7.0]), largest), exact)
    matrix = torch.ones(1, 1)
    while len(matrix) < 128:
        matrix = torch.cat((torch.cat((matrix, matrix), 1), torch.cat((matrix, -matrix), 1)))
    x = torch.randn(5, 128, generator=torch.Generator().manual_seed(1))
    assert (hadamard(x) - x @ matrix * 128 ** -0.5).abs().max() < 2e-6
    y = torch.randn(7, 256, generator=torch.Generator().manual_seed(2)) * torch.logspace(-6, 6, 7)[:, None]
    for rounded in (fp8_blocks(y, 128), fp8_blocks(y, 64), fp4_blocks(y)):
        assert torch.equal(bf16(rounded), rounded)  # the grids lie inside bf16
    assert torch.equal(fp8_blocks(fp8_blocks(y, 64), 64), fp8_blocks(y, 64)) and torch.equal(fp4_blocks(fp4_blocks(y)), fp4_blocks(y))
    print(f"quantisers: {len(every_bf16)} bf16 values, every grid point and midpoint of E4M3 and E2M1, scales, Hadamard: all equal")


if __name__ == "__main__":
    self_test()
