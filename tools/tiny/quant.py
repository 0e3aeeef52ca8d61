# SPDX-License-Identifier: Apache-2.0
"""The number grids of the shipped file and of release numerics: FP8 E4M3 with power-of-two scales and MXFP4.

Encoders return the bytes that go into the file; decoders turn bytes back into numbers and share no code with the
encoders. `ste_*` are the training forms: rounded values forward, identity gradient.
"""
import torch
from torch import Tensor

FP8_MAX = 448.0
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
TINY = 2.0**-60  # floor for the scale of an all-zero block


def ceil_log2(x: Tensor) -> Tensor:
    """Exact ceil(log2(x)) of positive normal fp32 values, from their bits."""
    bits = x.float().view(torch.int32)
    return (bits >> 23) - 127 + ((bits & 0x7FFFFF) != 0).to(torch.int32)


def pow2(e: Tensor) -> Tensor:
    return ((e + 127) << 23).view(torch.float32)


def round_fp8(x: Tensor) -> Tensor:
    return x.clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn).float()


def round_e2m1(x: Tensor) -> Tensor:
    """Nearest of 0 .5 1 1.5 2 3 4 6 (ties to the even code), saturating."""
    a = x.abs()
    step = torch.where(a < 2, 0.5, torch.where(a < 4, 1.0, 2.0))
    return torch.copysign((torch.round(a / step) * step).clamp(max=6.0), x)


# ---------------------------------------------------------------- weights: scale exponents
def fp8_exponents(w: Tensor) -> Tensor:
    """[out/128, in/128] exponents of the 128x128 blocks."""
    o, i = w.shape
    amax = w.float().view(o // 128, 128, i // 128, 128).abs().amax((1, 3))
    return ceil_log2((amax * (1 / FP8_MAX)).clamp(min=TINY))


def mxfp4_exponents(w: Tensor) -> Tensor:
    """[..., in/32] exponents: the one that clips nothing or the one below it, whichever has the smaller square error."""
    blocks = w.float().unflatten(-1, (-1, 32))
    high = ceil_log2((blocks.abs().amax(-1) * (1 / 6)).clamp(min=TINY))
    error = []
    for e in (high, high - 1):
        s = pow2(e).unsqueeze(-1)
        error.append((round_e2m1(blocks / s) * s - blocks).square().sum(-1))
    return torch.where(error[1] < error[0], high - 1, high)


def round_weight_fp8(w: Tensor) -> Tensor:
    s = pow2(fp8_exponents(w)).repeat_interleave(128, 0).repeat_interleave(128, 1)
    return round_fp8(w.float() / s) * s


def round_weight_mxfp4(w: Tensor) -> Tensor:
    s = pow2(mxfp4_exponents(w)).unsqueeze(-1)
    return (round_e2m1(w.float().unflatten(-1, (-1, 32)) / s) * s).flatten(-2)


# ---------------------------------------------------------------- activations
def round_blocks_fp8(x: Tensor, block: int) -> Tensor:
    """Release rounding of activations: `block` consecutive channels share a scale 2^ceil(log2(max(amax, 1e-4)/448))."""
    b = x.float().unflatten(-1, (-1, block))
    amax = b.abs().amax(-1, keepdim=True).clamp(min=1e-4)
    s = pow2(ceil_log2(amax * (1 / FP8_MAX)))
    return (round_fp8(b / s) * s).flatten(-2)


def round_blocks_fp4(x: Tensor) -> Tensor:
    """Release rounding of index queries and keys: E2M1 with a scale for every 32 channels."""
    b = x.float().unflatten(-1, (-1, 32))
    s = pow2(ceil_log2((b.abs().amax(-1, keepdim=True) * (1 / 6)).clamp(min=TINY)))
    return (round_e2m1(b / s) * s).flatten(-2)


def hadamard(n: int, device: torch.device | str = "cpu") -> Tensor:
    """Walsh-Hadamard matrix in Sylvester order, scaled to be orthogonal."""
    h = torch.ones(1, 1, device=device)
    while h.shape[0] < n:
        h = torch.cat((torch.cat((h, h), 1), torch.cat((h, -h), 1)))
    return h * n**-0.5


def ste(x: Tensor, rounded: Tensor) -> Tensor:
    return x + (rounded.to(x.dtype) - x).detach()


# ---------------------------------------------------------------- bytes
def encode_fp8(w: Tensor) -> tuple[Tensor, Tensor]:
    """Weight [out, in] -> E4M3 values (float8 dtype) and E8M0 scale bytes [out/128, in/128]."""
    e = fp8_exponents(w)
    s = pow2(e).repeat_interleave(128, 0).repeat_interleave(128, 1)
    return (w.float() / s).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn), (e + 127).to(torch.uint8)


def encode_mxfp4(w: Tensor) -> tuple[Tensor, Tensor]:
    """Weight [out, in] -> packed codes int8 [out, in/2] (low nibble first) and E8M0 scale bytes [out, in/32]."""
    e = mxfp4_exponents(w)
    x = round_e2m1(w.float().unflatten(-1, (-1, 32)) / pow2(e).unsqueeze(-1)).flatten(-2)
    grid = torch.tensor(E2M1, device=w.device)
    code = torch.searchsorted(grid, x.abs().contiguous()) + 8 * torch.signbit(x)
    code = code.to(torch.uint8).unflatten(-1, (-1, 2))
    return (code[..., 0] | (code[..., 1] << 4)).view(torch.int8), (e + 127).to(torch.uint8)


def decode_fp8(values: Tensor, scale: Tensor) -> Tensor:
    """From bytes alone: a table of the 256 E4M3 numbers and 2^(b-127)."""
    table = []
    for byte in range(256):
        sign, exponent, mantissa = -1.0 if byte & 128 else 1.0, byte >> 3 & 15, byte & 7
        table.append(sign * (mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)))
    v = torch.tensor(table, device=values.device)[values.view(torch.uint8).long()]
    o, i = v.shape
    s = torch.exp2(scale.view(torch.uint8).float() - 127)
    return (v.view(o // 128, 128, i // 128, 128) * s[:, None, :, None]).reshape(o, i)


def decode_mxfp4(packed: Tensor, scale: Tensor) -> Tensor:
    table = torch.tensor(E2M1 + tuple(-x for x in E2M1), device=packed.device)
    b = packed.view(torch.uint8).long()
    v = torch.stack((table[b & 15], table[b >> 4]), -1).flatten(-2)
    s = torch.exp2(scale.view(torch.uint8).float() - 127)
    return (v.unflatten(-1, (-1, 32)) * s.unsqueeze(-1)).flatten(-2)
