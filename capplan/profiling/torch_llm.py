"""One GPU's share of a transformer with random weights, in plain PyTorch."""

from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right

from capplan.errors import ProfileError
from capplan.llm.architecture import Architecture

_ROPE_BASE = 500_000.0


class Work(NamedTuple):
    """The work of one iteration; zeros for a part that it has not."""

    batch: int  # decoding requests
    context: int  # KV length of each, the new token included [tokens]
    prompts: int  # prompts, or chunks of them
    new: int  # new tokens of each [tokens]
    prefix: int  # cached tokens of each [tokens]


class _Layer(NamedTuple):
    query_key_value: torch.Tensor
    out: torch.Tensor
    up: torch.Tensor
    down: torch.Tensor
    norms: torch.Tensor


class TorchLlm:
    """Weights and KV cache of one rank, and one iteration of them."""

    def __init__(
        self,
        llm: Architecture,
        tp: int,
        device: torch.device,
        dtype: torch.dtype,
        kv_tokens: int,
        most_tokens: int,  # of an iteration
    ) -> None:
        check_llm(llm, tp)
        self.llm, self.tp, self.device, self.dtype = llm, tp, device, dtype
        self.heads, self.kv_heads = llm.heads // tp, llm.kv_heads_per_gpu(tp)
        generator = torch.Generator(device).manual_seed(0)

        def weight(*shape: int) -> torch.Tensor:
            drawn = torch.empty(shape, dtype=dtype, device=device)
            return drawn.normal_(0, 0.02, generator=generator)

        width = self.heads * llm.head_dim
        qkv_width = width + 2 * self.kv_heads * llm.head_dim
        ffn = llm.dense_ffn // tp
        self.layers = [
            _Layer(
                weight(qkv_width, llm.hidden),
                weight(llm.hidden, width),
                weight((2 if llm.gated else 1) * ffn, llm.hidden),
                weight(llm.hidden, ffn),
                torch.ones(2, llm.hidden, dtype=dtype, device=device),
            )
            for _ in range(llm.layers)
        ]
        self.embedding = weight(llm.vocab, llm.hidden)
        self.head = weight(-(-llm.vocab // tp), llm.hidden)
        self.kv = torch.zeros(
            (llm.layers, 2, kv_tokens, self.kv_heads, llm.head_dim),
            dtype=dtype,
            device=device,
        )
        self.tokens = torch.randint(
            llm.vocab, (most_tokens,), device=device, generator=generator
        )
        longest = torch.arange(kv_tokens, device=device, dtype=torch.float32)
        half = torch.arange(0, llm.head_dim, 2, device=device, dtype=torch.float32)
        angles = longest[:, None] * _ROPE_BASE ** (-half / llm.head_dim)
        self.cosine, self.sine = angles.cos().to(dtype), angles.sin().to(dtype)

    def iterate(self, work: Work) -> torch.Tensor:
        """Run one iteration; return a token per request and prompt."""
        return self.scores(work).argmax(-1)

    @torch.inference_mode()
    def scores(self, work: Work) -> torch.Tensor:
        """Run one iteration; return the last tokens' scores over the vocabulary."""
        llm = self.llm
        prompt_tokens = work.prompts * work.new
        count = work.batch + prompt_tokens
        positions = self._positions(work)
        cosine, sine = self.cosine[positions, None], self.sine[positions, None]
        hidden = self.embedding[self.tokens[:count]]
        for number, layer in enumerate(self.layers):
            normed = F.rms_norm(hidden, (llm.hidden,), layer.norms[0])
            heads = (normed @ layer.query_key_value.T).view(count, -1, llm.head_dim)
            counts = [self.heads, self.kv_heads, self.kv_heads]
            query, key, value = heads.split(counts, dim=1)
            query, key = _rotated(query, cosine, sine), _rotated(key, cosine, sine)
            attended = self._attend(number, work, query, key, value)
            hidden = hidden + self._reduced(attended @ layer.out.T)
            normed = F.rms_norm(hidden, (llm.hidden,), layer.norms[1])
            inner = normed @ layer.up.T
            if llm.gated:
                gate, inner = inner.chunk(2, dim=-1)
                inner = F.silu(gate) * inner
            else:
                inner = F.gelu(inner)
            hidden = hidden + self._reduced(inner @ layer.down.T)
        last = hidden[: work.batch]
        if work.prompts:
            ends = hidden[work.batch :].view(work.prompts, work.new, -1)[:, -1]
            last = torch.cat([last, ends])
        return F.rms_norm(last, (llm.hidden,)) @ self.head.T

    def _positions(self, work: Work) -> torch.Tensor:
        decoding = torch.full((work.batch,), work.context - 1, device=self.device)
        new = torch.arange(work.prefix, work.prefix + work.new, device=self.device)
        return torch.cat([decoding, new.repeat(work.prompts)])

    def _attend(
        self,
        number: int,
        work: Work,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
    ) -> torch.Tensor:
        batch, parts = work.batch, []
        if batch:
            cached = self._cached(number, 0, batch, work.context)
            cached[0, :, -1], cached[1, :, -1] = key[:batch], value[:batch]
            parts.append(_attention(query[:batch].unsqueeze(1), cached, causal=False))
        if work.prompts:
            start, length = batch * work.context, work.prefix + work.new
            cached = self._cached(number, start, work.prompts, length)
            shape = (work.prompts, work.new, self.kv_heads, -1)
            cached[0, :, work.prefix :] = key[batch:].view(shape)
            cached[1, :, work.prefix :] = value[batch:].view(shape)
            queries = query[batch:].view(work.prompts, work.new, self.heads, -1)
            parts.append(_attention(queries, cached, causal=True))
        return torch.cat(
            [part.reshape(-1, self.heads * self.llm.head_dim) for part in parts]
        )

    def _cached(self, number: int, start: int, count: int, length: int) -> torch.Tensor:
        """Return keys and values of ``count`` requests, a view of the cache."""
        rows = self.kv[number, :, start : start + count * length]
        return rows.view(2, count, length, self.kv_heads, -1)

    def _reduced(self, partial: torch.Tensor) -> torch.Tensor:
        if self.tp > 1:
            dist.all_reduce(partial)
        return partial


def check_llm(llm: Architecture, tp: int) -> None:
    """Refuse an LLM that ``TorchLlm`` cannot build, with a ``ProfileError``."""
    llm.check_tp(tp)
    kinds = {
        "experts": llm.experts,
        "latent attention": llm.is_mla,
        "layers with a recurrent state": llm.state_layers,
        "attention of two widths": llm.full_head_dim,
    }
    kind = next((name for name, has in kinds.items() if has), None)
    if kind:
        raise ProfileError(
            f"{llm.name} has {kind}; the torch backend builds dense models with "
            "ordinary attention"
        )
    if llm.dense_ffn % tp:
        raise ProfileError(
            f"{llm.name}: TP {tp} does not divide the feed-forward of {llm.dense_ffn}"
        )


def _rotated(
    heads: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor
) -> torch.Tensor:
    first, second = heads.chunk(2, dim=-1)
    return torch.cat(
        [first * cosine - second * sine, second * cosine + first * sine], dim=-1
    )


def _attention(query: torch.Tensor, cached: torch.Tensor, causal: bool) -> torch.Tensor:
    """Return attention of queries (n, new, heads, d) to cached keys and values."""
    queries, keys, values = (part.transpose(1, 2) for part in (query, *cached))
    new, length = queries.shape[2], keys.shape[2]
    grouped = queries.shape[1] != keys.shape[1]
    if not causal or new == length:
        attended = F.scaled_dot_product_attention(
            queries, keys, values, is_causal=causal, enable_gqa=grouped
        )
    else:
        if grouped:
            groups = queries.shape[1] // keys.shape[1]
            keys = keys.repeat_interleave(groups, 1)
            values = values.repeat_interleave(groups, 1)
        mask = causal_lower_right(new, length)
        attended = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
    return attended.transpose(1, 2)
