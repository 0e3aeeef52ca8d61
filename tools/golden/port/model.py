"""DeepSeek-V4 in plain PyTorch tensors: backbone, MTP block and DSpark drafter, in exact arithmetic or with the release's rounding.

    port = Port(config, weights)                       # config.json as a dict, published name -> fp32 tensor
    port = Port(config, weights, release=True)         # rounds as listed below
    state = port.new_state()
    out = port.run(ids, state)                         # appends to the state; any chunk length
    mtp = port.run_mtp(out.streams[-1], next_ids, state, position)    # position = that of the first row
    port.observe_dspark(out.streams, state, position)                 # then, after position p:
    block = port.run_dspark(next_id, state, p)

Caches are indexed by absolute position and nothing is ever dropped, so there is no ring or open-window state to get
wrong. Everything is fp32 unless `wide` asks for fp64 between the rounding points, which shows how far the last bits of sums and
exponentials alone move the results.

The release's rounding (R = bf16 nearest even, Q128 = E4M3 with one power-of-two scale per 128 channels of a token; the numbers name where in
the flow it happens; everything not named is fp32):

 1 embedding rows are bf16.
 2 mHC: mix, Sinkhorn and the collapse in fp32 from bf16 streams; collapsed vector R; RMSNorm in fp32 with the weight multiplied in
   before R.
 3 Q128 before wq_a, wq_b, wkv, indexer wq_b, wo_b, w1, w3, w2 (routed and shared), e_proj, h_proj. Their outputs are R. Weights are their
   exact dequantised values; accumulation in fp32 (its blocking is not imitated).
 4 wq_a output: RMSNorm, R (this vector feeds wq_b and the indexer).
 5 q, per head, in bf16 arithmetic: square R, mean in fp32 then R, plus eps R, reciprocal square root R, product R. RoPE with fp32 angles, R.
 6 kv: RMSNorm, R, RoPE, R, then the first 448 channels E4M3 in blocks of 64; the 64 rotary channels stay bf16.
 7 compressors: wkv and wgate without Q128 or R, gates, softmax and pooling in fp32; R; RMSNorm, R; RoPE, R; then rows as in 6.
 8 index queries and keys: RoPE, R; Hadamard in fp32, R; E2M1 in blocks of 32. weights_proj without Q128, output R.
   Scores: dot products, relu, times weight and the sum over heads in fp32; ties go to the lower entry.
 9 attention: scores and exp in fp32 with the largest score subtracted (the sink does not enter that maximum); the denominator sums
   unrounded values; the numerators are R before they multiply the rows; output R; inverse RoPE, R.
10 wo_a without Q128 (bf16 weight), output R.
11 mHC expand: post * o + sum of comb * X in fp32, R.
12 gate, scores and routing weights in fp32. w1 x and w3 x are R; clamp, SwiGLU and the routing weight in fp32, then R; Q128; w2, R. The sum over
   a token's experts (ascending id), then the shared expert, in fp32; R.
13 head: mix in fp32, collapsed vector R, RMSNorm R, lm_head in fp32 without R.
14 MTP: RMSNorm of the embedding row and of each stream, R; e_proj and h_proj as in 3; their sum R; then a block as above with ratio 0.
15 DSpark: mean over the streams R; main_proj as 3; main_norm, R; rows of the rings and of the block as 6. Markov rows are bf16; their product
   with w2, the sum with lm_head's output and the confidence in fp32 without R.

Where the description leaves a choice: 8 takes fp32 scores (the reference's bf16 score tensors tie often and its order among ties is
unspecified) and R after the Hadamard transform (its input and output are bf16 tensors there); 9 uses one maximum per query instead of a
running one over tiles of 64 keys; 12 fixes the order of the sum.
"""

from __future__ import annotations

import dataclasses
import math

import torch
import torch.nn.functional as F

from port import quantisers

NEVER = -math.inf


@dataclasses.dataclass
class Output:
    """One call's results; n tokens. `after_attention[i]` are the streams between layer i's two sites."""

    logits: torch.Tensor  # [n, V]
    streams: list[torch.Tensor]  # a layer: [n, 4, D]
    after_attention: list[torch.Tensor]
    experts: list[torch.Tensor]  # a layer: [n, k] ascending
    weights: list[torch.Tensor]  # [n, k]
    entries: dict[int, torch.Tensor]  # CSA layer: [n, topk] ascending, -1 after the last
    router_gap: torch.Tensor  # [n] smallest distance between a taken and a dropped choice over the layers, inf if none
    index_gap: torch.Tensor  # [n]


@dataclasses.dataclass
class Draft:
    """What a DSpark block proposes after one token."""

    streams: list[torch.Tensor]  # a stage: [block, 4, D]
    logits: torch.Tensor  # [block, V], the Markov correction included
    tokens: torch.Tensor  # [block] greedy
    confidence: torch.Tensor  # [block] raw
    router_gap: float
    margin: float  # smallest difference of the two largest logits


class Compressed:
    """A compressor's tokens (values and gates with ape added) and the entries closed so far, of one layer."""

    def __init__(self, width: int):
        self.values = self.gates = None
        self.entries = torch.zeros(0, width)

    def append(self, values: torch.Tensor, gates: torch.Tensor) -> None:
        self.values = values if self.values is None else torch.cat((self.values, values))
        self.gates = gates if self.gates is None else torch.cat((self.gates, gates))


class State:
    """Everything a sequence remembers. Row lists only grow; `copy` is cheap because tensors are never written in place."""

    def __init__(self, ratios: list[int], index_width: int, width: int):
        self.count = 0
        self.rows = [torch.zeros(0, width) for _ in ratios]
        self.compressed = [Compressed(width) for _ in ratios]
        self.index = [Compressed(index_width) for _ in ratios]
        self.mtp_rows = torch.zeros(0, width)
        self.dspark_rows: list[torch.Tensor] = []

    def copy(self) -> "State":
        new = object.__new__(State)
        new.count, new.rows, new.mtp_rows, new.dspark_rows = self.count, list(self.rows), self.mtp_rows, list(self.dspark_rows)
        new.compressed, new.index = [[_shallow(c) for c in side] for side in (self.compressed, self.index)]
        return new


def _shallow(c: Compressed) -> Compressed:
    new = object.__new__(Compressed)
    new.values, new.gates, new.entries = c.values, c.gates, c.entries
    return new


class Port:
    """`skip` leaves out rounding points by name (sensitivity.py uses it to show that the goldens notice)."""

    def __init__(self, config: dict, weights: dict[str, torch.Tensor], release: bool = False, wide: bool = False, skip: frozenset[str] = frozenset()):
        self.c, self.w, self.release, self.wide, self.skip = config, weights, release, wide, skip
        self.layers = config["num_hidden_layers"]
        self.ratios = config["compress_ratios"][:self.layers]
        self.frequencies = {ratio: self._frequencies(ratio) for ratio in (0, 4, 128)}

    # ------------------------------------------------------------ rounding
    def on(self, point: str) -> bool:
        return self.release and point not in self.skip

    def r(self, x: torch.Tensor, point: str) -> torch.Tensor:
        return quantisers.bf16(x) if self.on(point) else x

    def cached_row(self, x: torch.Tensor) -> torch.Tensor:
        if not self.on("6 row fp8"):
            return x
        nope = self.c["head_dim"] - self.c["qk_rope_head_dim"]
        return torch.cat((quantisers.fp8_blocks(x[..., :nope], 64), x[..., nope:]), -1)

    def index_row(self, x: torch.Tensor) -> torch.Tensor:
        if not self.on("8 index fp4"):
            return x
        return quantisers.fp4_blocks(self.r(quantisers.hadamard(x), "8 hadamard bf16"))

    # ------------------------------------------------------------ small parts
    def up(self, x: torch.Tensor) -> torch.Tensor:
        """The width in which a result is computed before it is stored as fp32."""
        return x.double() if self.wide else x

    def gemm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """x [..., in], weight [out, in] -> [..., out]."""
        return (self.up(x) @ self.up(weight).T).float()

    def quantised_linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        """A matrix whose input the release casts to FP8."""
        if self.on("3 input fp8"):
            x = quantisers.fp8_blocks(x, 128)
        return self.r(self.gemm(x, self.w[name + ".weight"]), "3 output bf16")

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        x = self.up(x)
        mean = x.square().mean(-1, keepdim=True)
        return self.r((x * torch.rsqrt(mean + self.c["rms_norm_eps"]) * self.w[name]).float(), "norm bf16")

    def _frequencies(self, ratio: int) -> torch.Tensor:
        """Radians a position of each rotated pair: plain for ratio 0, YaRN-blended otherwise."""
        width = self.c["qk_rope_head_dim"]
        theta = float(self.c["compress_rope_theta"] if ratio else self.c["rope_theta"])
        plain = 1.0 / theta ** (torch.arange(0, width, 2, dtype=torch.float32) / width)
        if ratio == 0:
            return plain
        yarn = self.c["rope_scaling"]
        original = yarn["original_max_position_embeddings"]
        low, high = (width * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta)) for turns in (yarn["beta_fast"], yarn["beta_slow"]))
        low, high = max(math.floor(low), 0), min(math.ceil(high), width - 1)
        ramp = ((torch.arange(width // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
        return plain / yarn["factor"] * ramp + plain * (1 - ramp)

    def rotate(self, x: torch.Tensor, positions: torch.Tensor, ratio: int, inverse: bool = False) -> torch.Tensor:
        """Rotates the last channels of x [n, ..., width]; neighbouring channels form a pair."""
        angle = positions.to(torch.float32)[:, None] * self.frequencies[ratio]
        angle = angle.reshape(len(positions), *[1] * (x.dim() - 2), -1)
        angle = self.up(-angle if inverse else angle)
        turn = torch.polar(torch.ones_like(angle), angle)
        width = 2 * turn.shape[-1]
        pairs = torch.view_as_complex(self.up(x[..., -width:]).contiguous().unflatten(-1, (-1, 2)))
        rotated = torch.view_as_real(pairs * turn).flatten(-2).float()
        return self.r(torch.cat((x[..., :-width], rotated), -1), "rotation bf16")

    # ------------------------------------------------------------ hyper-connections
    def mix_logits(self, streams: torch.Tensor, fn: torch.Tensor) -> torch.Tensor:
        flat = self.up(streams.flatten(-2))
        return flat @ self.up(fn).T * torch.rsqrt(flat.square().mean(-1, keepdim=True) + self.c["rms_norm_eps"])

    def site(self, streams: torch.Tensor, p: str, kind: str, sublayer) -> torch.Tensor:
        n, eps = self.c["hc_mult"], self.c["hc_eps"]
        scale, base = self.w[f"{p}hc_{kind}_scale"], self.w[f"{p}hc_{kind}_base"]
        m = self.mix_logits(streams, self.w[f"{p}hc_{kind}_fn"])
        pre = torch.sigmoid(m[:, :n] * scale[0] + base[:n]) + eps
        post = 2 * torch.sigmoid(m[:, n:2 * n] * scale[1] + base[n:2 * n])
        comb = torch.softmax((m[:, 2 * n:] * scale[2] + base[2 * n:]).view(-1, n, n), 2) + eps
        for half_step in range(2 * self.c["hc_sinkhorn_iters"] - 1):  # columns first and last
            comb = comb / (comb.sum(1 if half_step % 2 == 0 else 2, keepdim=True) + eps)
        out = sublayer(self.norm(self.r(torch.einsum("ni,nid->nd", pre, self.up(streams)).float(), "2 collapse bf16"), f"{p}{kind}_norm.weight"))
        mixed = torch.einsum("njk,njd->nkd", comb, self.up(streams))
        return self.r((post[:, :, None] * out[:, None, :] + mixed).float(), "11 streams bf16")

    def collapse(self, streams: torch.Tensor, p: str) -> torch.Tensor:
        m = self.mix_logits(streams, self.w[p + "hc_head_fn"])
        weight = torch.sigmoid(m * self.w[p + "hc_head_scale"] + self.w[p + "hc_head_base"]) + self.c["hc_eps"]
        return self.r(torch.einsum("ni,nid->nd", weight, self.up(streams)).float(), "13 collapse bf16")

    def head(self, streams: torch.Tensor, p: str) -> torch.Tensor:
        return self.gemm(self.norm(self.collapse(streams, p), p + "norm.weight"), self.w["head.weight"])

    # ------------------------------------------------------------ attention
    def compress(self, store: Compressed, p: str, x: torch.Tensor, positions: torch.Tensor, ratio: int) -> torch.Tensor:
        """Appends tokens; returns the entries they closed, rotated, before the cache's own rounding."""
        width = store.entries.shape[1]
        store.append(self.gemm(x, self.w[p + "wkv.weight"]), self.gemm(x, self.w[p + "wgate.weight"]) + self.w[p + "ape"][positions % ratio])
        first, last = len(store.entries), len(store.values) // ratio
        pooled = []
        for w in range(first, last):
            own = slice(ratio * w, ratio * (w + 1))
            if ratio == 4:  # second halves of this window's tokens, first halves of the one before
                values, gates = store.values[own, width:], store.gates[own, width:]
                if w > 0:
                    before = slice(ratio * (w - 1), ratio * w)
                    values = torch.cat((store.values[before, :width], values))
                    gates = torch.cat((store.gates[before, :width], gates))
            else:
                values, gates = store.values[own], store.gates[own]
            pooled.append((torch.softmax(self.up(gates), 0) * values).sum(0).float())
        if not pooled:
            return torch.zeros(0, width)
        return self.rotate(self.norm(self.r(torch.stack(pooled), "7 pooled bf16"), p + "norm.weight"), ratio * torch.arange(first, last), ratio)

    def choose_entries(self, p: str, store: Compressed, x, latent, positions, visible, ratio: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Boolean [n, entries] of the chosen entries, and the gap [n] to another choice."""
        heads, width, k = self.c["index_n_heads"], self.c["index_head_dim"], self.c["index_topk"]
        store.entries = torch.cat((store.entries, self.index_row(self.compress(store, p + "compressor.", x, positions, ratio))))
        q = self.quantised_linear(latent, p + "wq_b").unflatten(-1, (heads, width))
        q = self.index_row(self.rotate(q, positions, ratio))
        weight = self.r(self.gemm(x, self.w[p + "weights_proj.weight"]), "8 head weights bf16") * (width ** -0.5 * heads ** -0.5)
        score = torch.einsum("nh,nhw->nw", weight, F.relu(torch.einsum("nhd,wd->nhw", q, store.entries)))
        seen = torch.arange(len(store.entries)) < visible[:, None]
        order = torch.sort(score.masked_fill(~seen, NEVER), dim=-1, descending=True, stable=True)  # stable: ties to the lower entry
        gap = torch.full((len(x),), math.inf)
        if len(store.entries) <= k:
            return seen, gap
        gap = torch.where(visible > k, order.values[:, k - 1] - order.values[:, k], gap)
        return torch.zeros_like(seen).scatter_(1, order.indices[:, :k], True) & seen, gap

    def window_row(self, p: str, x: torch.Tensor, positions: torch.Tensor, ratio: int) -> torch.Tensor:
        return self.cached_row(self.rotate(self.norm(self.quantised_linear(x, p + "wkv"), p + "kv_norm.weight"), positions, ratio))

    def attention(self, p: str, x, positions, ratio: int, rows: torch.Tensor, compressed: Compressed | None, index: Compressed | None,
                  whole: bool = False):
        """Returns the output [n, D], the window rows with the new ones, chosen entries or None, and the choice gap or None. `whole`: every query
        sees the window's rows before the first one, and all the new ones."""
        heads, width, groups = self.c["num_attention_heads"], self.c["head_dim"], self.c["o_groups"]
        latent = self.norm(self.quantised_linear(x, p + "wq_a"), p + "q_norm.weight")
        q = self.quantised_linear(latent, p + "wq_b").unflatten(-1, (heads, width))
        mean = self.r(self.r(q.square(), "5 bf16 arithmetic").mean(-1, keepdim=True), "5 bf16 arithmetic")
        factor = torch.rsqrt(self.r(mean + self.c["rms_norm_eps"], "5 bf16 arithmetic"))
        q = self.r(q * self.r(factor, "5 bf16 arithmetic"), "5 product bf16")
        q = self.rotate(q, positions, ratio)
        rows = torch.cat((rows, self.window_row(p, x, positions, ratio)))
        age = positions[:, None] - torch.arange(len(rows))
        seen, keys, chosen, gap = (age >= 0) & (age < self.c["sliding_window"]), rows, None, None
        if whole:
            seen = (positions[0] - torch.arange(len(rows)) <= self.c["sliding_window"]).expand(len(x), -1)
        if ratio:
            new = self.compress(compressed, p + "compressor.", x, positions, ratio)
            compressed.entries = torch.cat((compressed.entries, self.cached_row(new)))
            visible = (positions + 1) // ratio
            entries_seen = torch.arange(len(compressed.entries)) < visible[:, None]
            if ratio == 4:
                chosen, gap = self.choose_entries(p + "indexer.", index, x, latent, positions, visible, ratio)
                entries_seen = chosen
            keys, seen = torch.cat((rows, compressed.entries)), torch.cat((seen, entries_seen), 1)
        score = torch.einsum("nhd,kd->nhk", self.up(q), self.up(keys)) * width ** -0.5
        score = score.masked_fill(~seen[:, None, :], NEVER)
        top = score.amax(-1, keepdim=True)
        numerator = torch.exp(score - top)
        denominator = numerator.sum(-1, keepdim=True) + torch.exp(self.w[p + "attn_sink"][None, :, None] - top)
        numerator = self.up(self.r(numerator.float(), "9 numerators bf16"))
        o = self.r((torch.einsum("nhk,kd->nhd", numerator, self.up(keys)) / denominator).float(), "9 output bf16")
        o = self.rotate(o, positions, ratio, inverse=True).reshape(len(x), groups, -1)
        wo_a = self.w[p + "wo_a.weight"].unflatten(0, (groups, -1))
        u = self.r(torch.cat([self.gemm(o[:, g], wo_a[g]) for g in range(groups)], -1), "10 wo_a bf16")
        return self.quantised_linear(u, p + "wo_b"), rows, chosen, gap

    # ------------------------------------------------------------ experts
    def route(self, p: str, x: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Experts [n, k] ascending, weights [n, k], gap [n]."""
        k = self.c["num_experts_per_tok"]
        score = torch.sqrt(F.softplus(self.gemm(x, self.w[p + "gate.weight"])))
        gap = torch.full((len(x),), math.inf)
        if p + "gate.tid2eid" in self.w:
            experts = self.w[p + "gate.tid2eid"][ids]
        else:
            order = torch.sort(score + self.w[p + "gate.bias"], dim=-1, descending=True, stable=True)
            experts, gap = order.indices[:, :k], order.values[:, k - 1] - order.values[:, k]
        experts = experts.sort(-1).values
        weights = score.gather(1, experts)
        return experts, weights / weights.sum(-1, keepdim=True) * self.c["routed_scaling_factor"], gap

    def expert(self, p: str, x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        limit = self.c["swiglu_limit"]
        gate = self.quantised_linear(x, p + "w1").clamp(max=limit)
        up = self.quantised_linear(x, p + "w3").clamp(-limit, limit)
        inner = (F.silu(self.up(gate)) * up).float()
        if weight is None:
            return self.quantised_linear(self.r(inner, "12 inner bf16"), p + "w2")
        if self.on("12 weight before w2"):
            return self.quantised_linear(self.r(inner * weight, "12 inner bf16"), p + "w2")
        return self.quantised_linear(self.r(inner, "12 inner bf16"), p + "w2") * weight

    def ffn(self, p: str, x: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(x)
        for e in sorted(set(experts.flatten().tolist())):
            tokens, slot = (experts == e).nonzero(as_tuple=True)
            total[tokens] += self.expert(f"{p}experts.{e}.", x[tokens], weights[tokens, slot, None])
        return self.r(total + self.expert(p + "shared_experts.", x, None), "12 sum bf16")

    # ------------------------------------------------------------ the model
    def new_state(self) -> State:
        return State(self.ratios, self.c["index_head_dim"], self.c["head_dim"])

    @torch.no_grad()
    def run(self, ids, state: State) -> Output:
        """Appends tokens to the sequence."""
        ids = torch.as_tensor(ids, dtype=torch.int64)
        positions = state.count + torch.arange(len(ids))
        streams = self.w["embed.weight"][ids][:, None, :].repeat(1, self.c["hc_mult"], 1)
        out = self.empty_output(len(ids))
        for layer in range(self.layers):
            streams = self.run_layer(layer, streams, ids, positions, state, out)
        out.logits = self.head(streams, "")
        state.count += len(ids)
        return out

    @staticmethod
    def empty_output(n: int) -> Output:
        never = torch.full((n,), math.inf)
        return Output(None, [], [], [], [], {}, never, never.clone())

    @torch.no_grad()
    def run_layer(self, layer: int, streams: torch.Tensor, ids: torch.Tensor, positions: torch.Tensor, state: State, out: Output) -> torch.Tensor:
        """One backbone layer on the streams [n, 4, D] at the next positions; its results are added to `out`."""
        ratio, p = self.ratios[layer], f"layers.{layer}."

        def attend(x):
            o, state.rows[layer], chosen, gap = self.attention(p + "attn.", x, positions, ratio, state.rows[layer], state.compressed[layer], state.index[layer])
            if chosen is not None:
                out.entries[layer] = self.entry_lists(chosen)
                out.index_gap = torch.minimum(out.index_gap, gap)
            return o

        return self.block(streams, p, ids, attend, out)

    def block(self, streams: torch.Tensor, p: str, ids: torch.Tensor, attend, out: Output) -> torch.Tensor:
        streams = self.site(streams, p, "attn", attend)
        out.after_attention.append(streams)

        def feed(x):
            experts, weights, gap = self.route(p + "ffn.", x, ids)
            out.experts.append(experts)
            out.weights.append(weights)
            out.router_gap = torch.minimum(out.router_gap, gap)
            return self.ffn(p + "ffn.", x, experts, weights)

        streams = self.site(streams, p, "ffn", feed)
        out.streams.append(streams)
        return streams

    def entry_lists(self, chosen: torch.Tensor) -> torch.Tensor:
        out = torch.full((len(chosen), self.c["index_topk"]), -1, dtype=torch.int64)
        for row, mask in enumerate(chosen):
            ids = mask.nonzero()[:, 0]
            out[row, :len(ids)] = ids
        return out

    @torch.no_grad()
    def run_mtp(self, streams: torch.Tensor, next_ids, state: State, position: int) -> Output:
        """The MTP block at positions position.. with the streams there and the token that follows each; rows of the block's
        window from `position` on are replaced. logits[i] predicts the token two after position + i."""
        ids = torch.as_tensor(next_ids, dtype=torch.int64)
        positions = position + torch.arange(len(ids))
        p = "mtp.0."
        e = self.quantised_linear(self.norm(self.w["embed.weight"][ids], p + "enorm.weight"), p + "e_proj")
        h = self.quantised_linear(self.norm(streams, p + "hnorm.weight"), p + "h_proj")
        rows = state.mtp_rows[:position]
        if len(rows) != position:
            raise ValueError(f"the MTP block has not seen positions {len(rows)}..{position - 1}")
        out = self.empty_output(len(ids))

        def attend(x):
            o, state.mtp_rows, _, _ = self.attention(p + "attn.", x, positions, 0, rows, None, None)
            return o

        y = self.block(self.r(e[:, None, :] + h, "14 sum bf16"), p, ids, attend, out)
        out.logits = self.head(y, p)
        return out

    @property
    def dspark_stages(self) -> int:
        return len(self.c["compress_ratios"]) - self.layers

    @torch.no_grad()
    def observe_dspark(self, streams: list[torch.Tensor], state: State, position: int) -> torch.Tensor:
        """Fills the rings from the backbone's streams of each layer [n, 4, D] at positions position..; rows from `position` on are
        replaced. Returns g [n, D]."""
        means = [self.r(self.up(streams[layer]).mean(1).float(), "15 mean bf16") for layer in self.c["dspark_target_layer_ids"]]
        g = self.norm(self.quantised_linear(torch.cat(means, -1), "mtp.0.main_proj"), "mtp.0.main_norm.weight")
        positions = position + torch.arange(len(g))
        known = state.dspark_rows or [torch.zeros(0, self.c["head_dim"])] * self.dspark_stages
        if len(known[0]) < position:
            raise ValueError(f"the drafter has not seen positions {len(known[0])}..{position - 1}")
        state.dspark_rows = [torch.cat((rows[:position], self.window_row(f"mtp.{stage}.attn.", g, positions, 0))) for stage, rows in enumerate(known)]
        return g

    @torch.no_grad()
    def run_dspark(self, next_id: int, state: State, position: int) -> Draft:
        """The block after `position`, whose next token is known; leaves the state as it is."""
        size, last = self.c["dspark_block_size"], f"mtp.{self.dspark_stages - 1}."
        ids = torch.tensor([next_id] + [self.c["dspark_noise_token_id"]] * (size - 1))
        positions = position + 1 + torch.arange(size)
        streams = self.w["embed.weight"][ids][:, None, :].repeat(1, self.c["hc_mult"], 1)
        out = self.empty_output(size)
        for stage in range(self.dspark_stages):
            rows, p = state.dspark_rows[stage][:position + 1], f"mtp.{stage}."
            streams = self.block(streams, p, ids, lambda x: self.attention(p + "attn.", x, positions, 0, rows, None, None, whole=True)[0], out)
        h = self.collapse(streams, last)
        base = self.gemm(self.norm(h, last + "norm.weight"), self.w["head.weight"])
        logits, tokens, confidence, previous = [], [], [], next_id
        for i in range(size):
            row = self.w[last + "markov_head.markov_w1.weight"][previous]
            logits.append(base[i] + self.gemm(row, self.w[last + "markov_head.markov_w2.weight"]))
            confidence.append(self.gemm(torch.cat((h[i], row)), self.w[last + "confidence_head.proj.weight"])[0])
            previous = int(logits[i].argmax())
            tokens.append(previous)
        top = torch.stack(logits).topk(2, -1).values
        return Draft(out.streams, torch.stack(logits), torch.tensor(tokens), torch.stack(confidence), out.router_gap.min().item(),
                     (top[:, 0] - top[:, 1]).min().item())
