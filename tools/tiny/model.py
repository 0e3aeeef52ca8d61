# SPDX-License-Identifier: Apache-2.0
"""tiny as it is trained: the parameters, shapes and rope tables of transformers' DeepseekV4, driven by a forward pass of
our own that is fit for training on packed rows (window attention in chunks, documents kept apart, all experts in one
matrix product, an index loss, release rounding) plus the MTP block. With one document a row and rounding off it computes what
transformers computes (check_export.py holds the two against each other).

Letters: B rows, S positions a row, D hidden, H heads, K hc_mult, M compressed entries, E experts.
A row holds documents that start at multiples of 4; one that is 128 tokens or longer starts at a multiple of 128, so
compressed entries never mix documents. `doc` [B, S] numbers them; padding has doc -1.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import DeepseekV4Config, DeepseekV4ForCausalLM
from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4DecoderLayer, DeepseekV4HyperHead, DeepseekV4RMSNorm

import quant as Q
from config import hf_config
from sinkhorn import sinkhorn

NEG = -1e30


@dataclass(frozen=True)
class Mode:
    """What is rounded in a forward pass, and its matrix dtype."""

    weights: bool = False  # straight-through rounding of the weights to the file's grids
    release: bool = False  # activations, KV rows and index vectors as in release numerics
    dtype: torch.dtype = torch.bfloat16


class Mtp(nn.Module):
    """The draft block mtp.0: predicts token t+2 from the streams at t and token t+1."""

    def __init__(self, config: DeepseekV4Config):
        super().__init__()
        d = config.hidden_size
        self.e_proj = nn.Linear(d, d, bias=False)
        self.h_proj = nn.Linear(d, d, bias=False)
        self.enorm = DeepseekV4RMSNorm(d, config.rms_norm_eps)
        self.hnorm = DeepseekV4RMSNorm(d, config.rms_norm_eps)
        self.block = DeepseekV4DecoderLayer(config, config.num_hidden_layers - 1)
        self.hc_head = DeepseekV4HyperHead(config)
        self.norm = DeepseekV4RMSNorm(d, config.rms_norm_eps)


class Tiny(nn.Module):
    def __init__(self, published: dict, seed: int = 0):
        super().__init__()
        torch.manual_seed(seed)
        self.config = hf_config(published)
        self.lm = DeepseekV4ForCausalLM(self.config)
        self.mtp = Mtp(hf_config(published, mtp=True))
        initialise(self, seed)

    def blocks(self) -> list[nn.Module]:
        return [*self.lm.model.layers, self.mtp.block]


def initialise(model: Tiny, seed: int) -> None:
    """Fan-in scaled matrices; hyper-connections near the identity but not alike; random hash table."""
    g = torch.Generator().manual_seed(seed)
    depth = len(model.blocks())

    def normal(p: Tensor, std: float, mean: float = 0.0) -> None:
        p.data.copy_(torch.randn(p.shape, generator=g) * std + mean)

    for name, p in model.named_parameters():
        if name.endswith("embed_tokens.weight"):
            normal(p, 0.5)
        elif "norm" in name:
            p.data.fill_(1.0)
        elif "sinks" in name or "position_bias" in name:
            p.data.zero_()
        elif name.endswith(("hc.fn", "hc_fn")):
            normal(p, 0.02)
        elif name.endswith(("hc.scale", "hc_scale")):
            p.data.fill_(0.1)
        elif name.endswith("hc_base"):
            p.data.fill_(-1.1)  # sigmoid: a quarter of each stream
        elif name.endswith("hc.base"):
            k = model.config.hc_mult
            normal(p, 0.5)
            p.data[:k] -= 1.1
            p.data[2 * k :] += 4.0 * torch.eye(k).flatten()
        else:
            residual = name.endswith(("o_b_proj.weight", "down_proj", "down_proj.weight"))
            normal(p, p.shape[-1] ** -0.5 * ((2 * depth) ** -0.5 if residual else 1.0))
    for block in model.blocks():
        if block.mlp.is_hash:
            table = block.mlp.gate.tid2eid
            scores = torch.rand(table.shape[0], model.config.n_routed_experts, generator=g)
            table.copy_(scores.topk(table.shape[1], -1).indices)


# ---------------------------------------------------------------- small parts
def rms(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    f = x.float()
    f = f * torch.rsqrt(f.square().mean(-1, keepdim=True) + eps)
    return (f if weight is None else f * weight.to(x.dtype).float()).to(x.dtype)


def lin(x: Tensor, w: Tensor) -> Tensor:
    """A bf16 weight: no activation rounding."""
    return F.linear(x, w.to(x.dtype))


def act(x: Tensor, mode: Mode) -> Tensor:
    return Q.ste(x, Q.round_blocks_fp8(x, 128)) if mode.release else x


def w8(w: Tensor, mode: Mode) -> Tensor:
    return (Q.ste(w, Q.round_weight_fp8(w)) if mode.weights else w).to(mode.dtype)


def w4(w: Tensor, mode: Mode) -> Tensor:
    return (Q.ste(w, Q.round_weight_mxfp4(w)) if mode.weights else w).to(mode.dtype)


def lin8(x: Tensor, w: Tensor, mode: Mode) -> Tensor:
    """An FP8 weight with its input rounded in release numerics; `x` already went through act()."""
    return F.linear(x, w8(w, mode))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Interleaved pairs of the last channels; cos, sin [S, n/2] broadcast over x [B, S, (H,) d]."""
    if x.dim() == 4:
        cos, sin = cos[:, None], sin[:, None]
    n = 2 * cos.shape[-1]
    a, b = x[..., -n::2].float(), x[..., -n + 1 :: 2].float()
    r = torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
    return torch.cat((x[..., :-n], r.to(x.dtype)), -1)


def round_kv(kv: Tensor, mode: Mode) -> Tensor:
    """Cache rows: 448 channels FP8 in blocks of 64, the rope channels as they are."""
    if not mode.release:
        return kv
    return torch.cat((Q.ste(kv[..., :448], Q.round_blocks_fp8(kv[..., :448], 64)), kv[..., 448:]), -1)


def round_index(x: Tensor, mode: Mode) -> Tensor:
    if not mode.release:
        return x
    x = (x.float() @ Q.hadamard(x.shape[-1], x.device)).to(x.dtype)
    return Q.ste(x, Q.round_blocks_fp4(x))


# ---------------------------------------------------------------- hyper-connections
def mix(X: Tensor, hc: nn.Module) -> tuple[Tensor, Tensor, Tensor]:
    """X [B, S, K, D] -> collapsed [B, S, D], post [B, S, K], comb before its Sinkhorn projection [B, S, K, K] (fp32)."""
    k, eps = hc.hc_mult, hc.hc_eps
    f = X.flatten(2).float()
    m = F.linear(f, hc.fn) * torch.rsqrt(f.square().mean(-1, keepdim=True) + hc.input_norm.eps)
    pre = torch.sigmoid(m[..., :k] * hc.scale[0] + hc.base[:k]) + eps
    post = 2 * torch.sigmoid(m[..., k : 2 * k] * hc.scale[1] + hc.base[k : 2 * k])
    c = (m[..., 2 * k :] * hc.scale[2] + hc.base[2 * k :]).unflatten(-1, (k, k))
    c = torch.softmax(c, -1) + eps
    return (pre.unsqueeze(-1) * X.float()).sum(2).to(X.dtype), post, c


def mix_norm(X: Tensor, hc: nn.Module, norm: nn.Module) -> tuple[Tensor, Tensor, Tensor]:
    y, post, comb = mix(X, hc)
    return rms(y, norm.weight, norm.variance_epsilon), post, comb


def expand(X: Tensor, o: Tensor, post: Tensor, comb: Tensor) -> Tensor:
    mixed = (comb.unsqueeze(-1) * X.float().unsqueeze(3)).sum(2)  # sum over the first index of comb
    return (post.unsqueeze(-1) * o.float().unsqueeze(2) + mixed).to(X.dtype)


def head_mix(X: Tensor, head: nn.Module) -> Tensor:
    f = X.flatten(2).float()
    m = F.linear(f, head.hc_fn) * torch.rsqrt(f.square().mean(-1, keepdim=True) + head.input_norm.eps)
    p = torch.sigmoid(m * head.hc_scale + head.hc_base) + head.eps
    return (p.unsqueeze(-1) * X.float()).sum(2).to(X.dtype)


# ---------------------------------------------------------------- attention
def compress(x: Tensor, m: nn.Module, rope: tuple[Tensor, Tensor], doc: Tensor, eps: float) -> Tensor:
    """Entries [B, S/r, d] of an HCA, CSA or index compressor; r and the width tell which."""
    r, d = m.position_bias.shape[0], m.kv_norm.weight.shape[0]
    c = lin(x, m.kv_proj.weight).float().unflatten(1, (-1, r))
    z = lin(x, m.gate_proj.weight).float().unflatten(1, (-1, r)) + m.position_bias
    if c.shape[-1] == 2 * d:  # overlapping: the window before's a-halves, this window's b-halves
        first = doc[:, ::r]
        same = F.pad(first[:, 1:] == first[:, :-1], (1, 0))[:, :, None, None]
        before_c = F.pad(c[:, :-1, :, :d], (0, 0, 0, 0, 1, 0))
        before_z = torch.where(same, F.pad(z[:, :-1, :, :d], (0, 0, 0, 0, 1, 0)), NEG)
        c, z = torch.cat((before_c, c[..., d:]), 2), torch.cat((before_z, z[..., d:]), 2)
    e = (torch.softmax(z, 2) * c).sum(2).to(x.dtype)
    return rotate(rms(e, m.kv_norm.weight, eps), rope[0][::r], rope[1][::r])


def entry_visible(doc: Tensor, r: int) -> Tensor:
    """[B, S, M]: entry w belongs wholly to the query's document and its last token is not after the query."""
    s = doc.shape[1]
    first, last = doc[:, ::r], doc[:, r - 1 :: r]
    entry_doc = torch.where(first == last, first, -2)
    if r == 4:
        entry_doc = first  # padding after a short last window is never followed by a query of that document
    w = torch.arange(s // r, device=doc.device)
    t = torch.arange(s, device=doc.device)
    return (entry_doc[:, None, :] == doc[:, :, None]) & (w[None, :] < ((t + 1) // r)[:, None])


def index_scores(x: Tensor, qr: Tensor, ix: nn.Module, rope: tuple[Tensor, Tensor], doc: Tensor, eps: float, mode: Mode) -> Tensor:
    """[B, S, M] fp32; learns only from the index loss, so its inputs are detached."""
    x, qr = x.detach(), qr.detach()
    keys = round_index(compress(x, ix, rope, doc, eps), mode)
    q = lin8(act(qr, mode), ix.q_b_proj.weight, mode).unflatten(-1, (ix.num_heads, ix.head_dim))
    q = round_index(rotate(q, *rope), mode)
    dots = (q.flatten(1, 2) @ keys.transpose(1, 2)).unflatten(1, (-1, ix.num_heads)).float()
    wt = lin(x, ix.scorer.weights_proj.weight).float() * (ix.head_dim**-0.5 * ix.num_heads**-0.5)
    return (F.relu(dots) * wt.unsqueeze(-1)).sum(2)


def attention(x: Tensor, a: nn.Module, ropes: dict, doc: Tensor, mode: Mode) -> tuple[Tensor, Tensor]:
    """x [B, S, D] normed -> output [B, S, D] and the index loss (0 where there is no index)."""
    cfg = a.config
    B, S, _ = x.shape
    H, hd, C, eps = cfg.num_attention_heads, cfg.head_dim, cfg.sliding_window, cfg.rms_norm_eps
    ratio = 0 if a.compressor is None else a.compressor.compress_rate
    rope = ropes["compress" if ratio else "main"]
    xq = act(x, mode)
    qr = rms(lin8(xq, a.q_a_proj.weight, mode), a.q_a_norm.weight, eps)
    q = rms(lin8(act(qr, mode), a.q_b_proj.weight, mode).unflatten(-1, (H, hd)), None, eps)
    q = rotate(q, *rope)
    kv = round_kv(rotate(rms(lin8(xq, a.kv_proj.weight, mode), a.kv_norm.weight, eps), *rope), mode)

    # The window in chunks of C queries, each against the chunk before and its own.
    n = S // C
    chunks = kv.unflatten(1, (n, C))
    keys = torch.cat((F.pad(chunks[:, :-1], (0, 0, 0, 0, 1, 0)), chunks), 2)  # [B, n, 2C, hd]
    dc = doc.unflatten(1, (n, C))
    kdoc = torch.cat((F.pad(dc[:, :-1], (0, 0, 1, 0), value=-3), dc), 2)
    gap = torch.arange(C, device=x.device)[:, None] + C - torch.arange(2 * C, device=x.device)[None]
    near = ((gap >= 0) & (gap < C)) & (kdoc[:, :, None, :] == dc[:, :, :, None])  # [B, n, C, 2C]
    sw = (q.unflatten(1, (n, C)).flatten(2, 3) @ keys.transpose(2, 3)).float() * hd**-0.5
    sw = sw.unflatten(2, (C, H)).masked_fill(~near.unsqueeze(3), NEG).flatten(1, 2)  # [B, S, H, 2C]
    sink = a.sinks.view(1, 1, H, 1).expand(B, S, H, 1)
    loss = x.new_zeros((), dtype=torch.float32)
    if not ratio:
        p = torch.softmax(torch.cat((sw, sink), -1), -1)
        pw = p[..., : 2 * C]
        oc = None
    else:
        m = a.compressor
        entries = round_kv(compress(x, m, rope, doc, eps), mode)
        see = entry_visible(doc, ratio)
        sc = (q.flatten(1, 2) @ entries.transpose(1, 2)).float() * hd**-0.5
        sc = sc.unflatten(1, (S, H)).masked_fill(~see.unsqueeze(2), NEG)
        p = torch.softmax(torch.cat((sw, sc, sink), -1), -1)
        pw, pc = p[..., : 2 * C], p[..., 2 * C : -1]
        if ratio == 4:
            score = index_scores(x, qr, m.indexer, rope, doc, eps, mode).masked_fill(~see, NEG)
            k = min(m.indexer.index_topk, score.shape[-1])
            kept = torch.zeros_like(see).scatter_(-1, score.topk(k, -1).indices, True) & see
            target = pc.detach().sum(2) * see
            log_q = torch.log_softmax(score, -1)
            loss = -(target * log_q.masked_fill(~see, 0.0)).sum() / target.sum().clamp(min=1.0)
            # softmax over a subset is the full softmax restricted to it and divided by what is left
            pc = pc * kept.unsqueeze(2)
            left = pw.sum(-1, keepdim=True) + pc.sum(-1, keepdim=True) + p[..., -1:]
            pw, pc = pw / left, pc / left
        oc = (pc.to(x.dtype).flatten(1, 2) @ entries).unflatten(1, (S, H))
    o = (pw.to(x.dtype).unflatten(1, (n, C)).flatten(2, 3) @ keys).unflatten(2, (C, H)).flatten(1, 2)
    if oc is not None:
        o = o + oc
    o = rotate(o, rope[0], -rope[1])
    g = cfg.o_groups
    wo_a = w8(a.o_a_proj.weight, mode).view(g, cfg.o_lora_rank, -1)
    u = torch.einsum("bsgi,goi->bsgo", o.reshape(B, S, g, -1), wo_a).flatten(2)
    return lin8(act(u, mode), a.o_b_proj.weight, mode), loss


# ---------------------------------------------------------------- experts
def swiglu(gate: Tensor, up: Tensor, limit: float) -> Tensor:
    return F.silu(gate.float().clamp(max=limit)) * up.float().clamp(-limit, limit)


def moe(x: Tensor, m: nn.Module, ids: Tensor, doc: Tensor, mode: Mode) -> tuple[Tensor, Tensor]:
    """All experts at once: the unchosen have weight 0. Returns also the tokens each expert got [E], padding left out."""
    gate, ex, sh = m.gate, m.experts, m.shared_experts
    E, I = ex.num_experts, ex.intermediate_dim
    s = torch.sqrt(F.softplus(F.linear(x.float(), gate.weight.to(mode.dtype).float())))
    if m.is_hash:
        sel = gate.tid2eid[ids]
    else:
        sel = (s + gate.e_score_correction_bias).topk(gate.top_k, -1).indices
    wt = s.gather(-1, sel)
    wt = wt / wt.sum(-1, keepdim=True) * gate.routed_scaling_factor
    dense = torch.zeros_like(s).scatter(-1, sel, wt)
    xq = act(x, mode)
    gu = F.linear(xq, w4(ex.gate_up_proj, mode).flatten(0, 1)).unflatten(-1, (E, 2 * I))
    h = (swiglu(gu[..., :I], gu[..., I:], ex.limit) * dense.unsqueeze(-1)).to(x.dtype)
    h = act(h, mode).flatten(2)
    y = F.linear(h, w4(ex.down_proj, mode).transpose(0, 1).flatten(1))
    gate_s, up_s = lin8(xq, sh.gate_proj.weight, mode), lin8(xq, sh.up_proj.weight, mode)
    hs = act(swiglu(gate_s, up_s, sh.limit).to(x.dtype), mode)
    load = ((dense > 0) & (doc >= 0).unsqueeze(-1)).sum((0, 1))
    return y + lin8(hs, sh.down_proj.weight, mode), load


def ropes_for(model: Tiny, length: int) -> dict:
    tables = {}
    for kind in ("main", "compress"):
        freq = getattr(model.lm.model.rotary_emb, f"{kind}_inv_freq").float()
        angle = torch.arange(length, device=freq.device).float()[:, None] * freq
        tables[kind] = (angle.cos(), angle.sin())
    return tables


def draft_input(X: Tensor, next_ids: Tensor, embed: Tensor, m: Mtp, mode: Mode) -> Tensor:
    eps = m.enorm.variance_epsilon
    e = lin8(act(rms(F.embedding(next_ids, embed).to(mode.dtype), m.enorm.weight, eps), mode), m.e_proj.weight, mode)
    h = lin8(act(rms(X, m.hnorm.weight, eps), mode), m.h_proj.weight, mode)
    return e.unsqueeze(2) + h


def read_out(X: Tensor, head: nn.Module, norm: nn.Module, lm_head: Tensor) -> Tensor:
    h = rms(head_mix(X, head), norm.weight, norm.variance_epsilon)
    return F.linear(h, lm_head.to(h.dtype)).float()


def weighted_loss(X: Tensor, head: nn.Module, norm: nn.Module, lm_head: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Cross-entropy of the read-out, [B, S] targets, weighted mean."""
    logits = read_out(X, head, norm, lm_head)
    loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none")
    return (loss * weight.flatten()).sum() / weight.sum().clamp(min=1.0)


@dataclass
class Streams:
    main: Tensor  # [B, S, K, D] after the last layer; read out for t+1
    draft: Tensor  # [B, S, K, D] after the MTP block, given the true token t+1; read out for t+2
    index_loss: Tensor
    loads: Tensor  # [blocks, E]: share of the tokens each expert got


class Runner:
    """The forward pass; `compiled` puts each part through torch.compile (once a kind of layer and a mode)."""

    def __init__(self, model: Tiny, compiled: bool):
        self.model = model
        wrap = (lambda f: torch.compile(f, dynamic=False)) if compiled else (lambda f: f)
        self.mix, self.expand, self.attention, self.moe = wrap(mix_norm), wrap(expand), wrap(attention), wrap(moe)
        self.draft_input, self.weighted_loss = wrap(draft_input), wrap(weighted_loss)

    def block(self, layer: nn.Module, X: Tensor, ids: Tensor, ropes: dict, doc: Tensor, mode: Mode) -> tuple[Tensor, Tensor, Tensor]:
        rounds, eps = layer.attn_hc.hc_sinkhorn_iters, layer.attn_hc.hc_eps
        x, post, comb = self.mix(X, layer.attn_hc, layer.input_layernorm)
        o, loss = self.attention(x, layer.self_attn, ropes, doc, mode)
        X = self.expand(X, o, post, sinkhorn(comb, rounds, eps))
        x, post, comb = self.mix(X, layer.ffn_hc, layer.post_attention_layernorm)
        o, load = self.moe(x, layer.mlp, ids, doc, mode)
        return self.expand(X, o, post, sinkhorn(comb, rounds, eps)), loss, load

    def streams(self, ids: Tensor, doc: Tensor, mode: Mode) -> Streams:
        model, lm = self.model, self.model.lm
        ropes = ropes_for(model, ids.shape[1])
        embed = lm.model.embed_tokens.weight
        X = F.embedding(ids, embed).to(mode.dtype).unsqueeze(2).repeat(1, 1, model.config.hc_mult, 1)
        index_loss, loads = X.new_zeros((), dtype=torch.float32), []
        for layer in lm.model.layers:
            X, loss, load = self.block(layer, X, ids, ropes, doc, mode)
            index_loss = index_loss + loss
            loads.append(load)
        next_ids = F.pad(ids[:, 1:], (0, 1))
        Y = self.draft_input(X, next_ids, embed, model.mtp, mode)
        Y, _, load = self.block(model.mtp.block, Y, ids, ropes, doc, mode)
        loads.append(load)
        return Streams(X, Y, index_loss, torch.stack(loads))

    def losses(self, ids: Tensor, doc: Tensor, weight: Tensor, mode: Mode) -> tuple[Tensor, Tensor, Streams]:
        """Losses of the model and of the draft; weight [B, S] belongs to the token at its own position."""
        lm, mtp = self.model.lm, self.model.mtp
        s = self.streams(ids, doc, mode)
        out = []
        for ahead, X, head, norm in ((1, s.main, lm.model.hc_head, lm.model.norm), (2, s.draft, mtp.hc_head, mtp.norm)):
            same = F.pad(doc[:, ahead:] == doc[:, :-ahead], (0, ahead))
            out.append(self.weighted_loss(X, head, norm, lm.lm_head.weight, F.pad(ids[:, ahead:], (0, ahead)), F.pad(weight[:, ahead:], (0, ahead)) * same))
        return out[0], out[1], s

    def logits(self, ids: Tensor, doc: Tensor, mode: Mode) -> tuple[Tensor, Tensor]:
        """[B, S, V] for t+1 and, given the true token t+1, for t+2."""
        lm, mtp = self.model.lm, self.model.mtp
        s = self.streams(ids, doc, mode)
        return (
            read_out(s.main, lm.model.hc_head, lm.model.norm, lm.lm_head.weight),
            read_out(s.draft, mtp.hc_head, mtp.norm, lm.lm_head.weight),
        )
