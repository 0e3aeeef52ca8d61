# SPDX-License-Identifier: Apache-2.0
"""The Sinkhorn projection of the hyper-connections with a hand-written gradient: 20 column and 19 row normalisations of
4x4 matrices, one Triton kernel forward and one backward on a GPU, plain PyTorch elsewhere.

A normalisation is C' = C / s with s = sum(C) + eps along rows or columns, so from C' and s alone both C = C' * s and the
gradient dC = (dC' - sum(dC' * C')) / s follow; forward keeps the sums only.
"""
import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

BLOCK = 64
K = 4

if triton is not None:

    @triton.jit
    def _forward(c_ptr, out_ptr, sums_ptr, n, eps, ROUNDS: tl.constexpr, BLOCK: tl.constexpr, K: tl.constexpr):
        t = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        k = tl.arange(0, K)
        at = t[:, None, None] * (K * K) + k[None, :, None] * K + k[None, None, :]
        inside = t[:, None, None] < n
        c = tl.load(c_ptr + at, mask=inside, other=1.0)
        vec = t[:, None] * K + k[None, :]
        mask = t[:, None] < n
        stride = n * K
        s = tl.sum(c, axis=1) + eps
        tl.store(sums_ptr + vec, s, mask=mask)
        c = c / s[:, None, :]
        for i in range(1, ROUNDS):
            s = tl.sum(c, axis=2) + eps
            tl.store(sums_ptr + (2 * i - 1) * stride + vec, s, mask=mask)
            c = c / s[:, :, None]
            s = tl.sum(c, axis=1) + eps
            tl.store(sums_ptr + (2 * i) * stride + vec, s, mask=mask)
            c = c / s[:, None, :]
        tl.store(out_ptr + at, c, mask=inside)

    @triton.jit
    def _backward(out_ptr, sums_ptr, g_ptr, dc_ptr, n, ROUNDS: tl.constexpr, BLOCK: tl.constexpr, K: tl.constexpr):
        t = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        k = tl.arange(0, K)
        at = t[:, None, None] * (K * K) + k[None, :, None] * K + k[None, None, :]
        inside = t[:, None, None] < n
        c = tl.load(out_ptr + at, mask=inside, other=0.0)
        g = tl.load(g_ptr + at, mask=inside, other=0.0)
        vec = t[:, None] * K + k[None, :]
        mask = t[:, None] < n
        stride = n * K
        for j in range(1, ROUNDS):
            i = ROUNDS - j
            s = tl.load(sums_ptr + (2 * i) * stride + vec, mask=mask, other=1.0)
            g = (g - tl.sum(g * c, axis=1)[:, None, :]) / s[:, None, :]
            c = c * s[:, None, :]
            s = tl.load(sums_ptr + (2 * i - 1) * stride + vec, mask=mask, other=1.0)
            g = (g - tl.sum(g * c, axis=2)[:, :, None]) / s[:, :, None]
            c = c * s[:, :, None]
        s = tl.load(sums_ptr + vec, mask=mask, other=1.0)
        g = (g - tl.sum(g * c, axis=1)[:, None, :]) / s[:, None, :]
        tl.store(dc_ptr + at, g, mask=inside)


class _Sinkhorn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, c: Tensor, rounds: int, eps: float) -> Tensor:
        c = c.contiguous()
        n = c.numel() // (K * K)
        out = torch.empty_like(c)
        sums = torch.empty(2 * rounds - 1, n, K, device=c.device)
        _forward[(triton.cdiv(n, BLOCK),)](c, out, sums, n, eps, rounds, BLOCK, K)
        ctx.save_for_backward(out, sums)
        ctx.rounds = rounds
        return out

    @staticmethod
    def backward(ctx, g: Tensor) -> tuple[Tensor, None, None]:
        out, sums = ctx.saved_tensors
        n = out.numel() // (K * K)
        dc = torch.empty_like(out)
        _backward[(triton.cdiv(n, BLOCK),)](out, sums, g.contiguous(), dc, n, ctx.rounds, BLOCK, K)
        return dc, None, None


def plain(c: Tensor, rounds: int, eps: float) -> Tensor:
    c = c / (c.sum(-2, keepdim=True) + eps)
    for _ in range(rounds - 1):
        c = c / (c.sum(-1, keepdim=True) + eps)
        c = c / (c.sum(-2, keepdim=True) + eps)
    return c


def sinkhorn(c: Tensor, rounds: int, eps: float) -> Tensor:
    """c [..., 4, 4] positive fp32, already softmaxed along the last axis."""
    if c.is_cuda and triton is not None:
        return _Sinkhorn.apply(c, rounds, eps)
    return plain(c, rounds, eps)
