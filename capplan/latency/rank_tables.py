"""Iteration time of ranks that step together: attention apart, experts shared by all.

With n_r tokens of rank r in an iteration, of which b_r decode at contexts that sum to
L_r and T_r are new prompt tokens with attention work Q_r, it takes ::

    max over r of A(b_r, L_r, T_r, Q_r) + X(N) + C(max over r of n_r)

A is what a rank does alone, X the routed experts of all ranks' tokens N on the most
loaded GPU, C their dispatch and combine. Where all ranks replay CUDA graphs each is
padded to the graph of the largest, so that N is D times its size; one rank with more
tokens than the largest graph turns graphs and padding off for all (vLLM 0.33,
``dp_utils``).
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from capplan.latency.contract import LatencyTables


class RankWork(NamedTuple):
    """Work of a rank in one iteration; without any it computes a dummy token."""

    decoding: int = 0  # requests
    context: float = 0.0  # of the decoding requests, summed [tokens]
    prefill_tokens: int = 0
    attention: float = 0.0  # of the prefill, sum(new * (prefix + new / 2)) [tokens²]
    drafted_tokens: int = 0  # verified beside those of the decoding requests


class RankTables(NamedTuple):
    """Parts of an iteration's time, by tokens.

    The parts other than a rank's are of one kind of kernels where no rank has a prompt
    in the iteration and of another where one has. All arrays are float64 and end at
    the most tokens of a rank, those of the experts at that of all ranks.
    """

    rank: LatencyTables  # A
    ranks: int  # D
    experts_s: np.ndarray  # X by N, decoding alone [s]
    experts_prefill_s: np.ndarray  # X by N, with a prompt [s]
    exchange_s: np.ndarray  # C by the tokens of a rank, decoding alone [s]
    exchange_prefill_s: np.ndarray  # C by the tokens of a rank, with a prompt [s]
    tokens_per_request: int = 1  # of a decoding request: 1 and those drafted

    def iteration_time_s(
        self, work: Sequence[RankWork], graph_sizes: Sequence[int] = ()
    ) -> float:
        """Return the time of one iteration of all ranks. [s]

        ``graph_sizes`` are those of the CUDA graphs, ascending; without any nothing is
        padded. [tokens]
        """
        alone_s = max(self._rank_s(one) for one in work)
        tokens = [self._tokens(one) for one in work]
        largest, all_tokens = max(tokens), sum(tokens)
        at = bisect_left(graph_sizes, largest)
        if at < len(graph_sizes):
            largest = graph_sizes[at]
            all_tokens = self.ranks * largest
        if any(one.prefill_tokens for one in work):
            experts_s, exchange_s = self.experts_prefill_s, self.exchange_prefill_s
        else:
            experts_s, exchange_s = self.experts_s, self.exchange_s
        return alone_s + float(experts_s[all_tokens]) + float(exchange_s[largest])

    def _tokens(self, work: RankWork) -> int:
        """Return the tokens of a rank, at least that of a dummy."""
        decoded = work.decoding * self.tokens_per_request + work.drafted_tokens
        return max(1, decoded + work.prefill_tokens)

    def _rank_s(self, work: RankWork) -> float:
        """Return A. [s]

        Drafts are verified by the products of a batch of prompts, while each request's
        KV is read once.
        """
        table, b = self.rank, work.decoding
        beside = work.prefill_tokens + work.drafted_tokens
        if beside == 0:
            return float(table.decode_s[b] + table.decode_context_s[b] * work.context)
        return float(
            table.fused_s[beside + b]
            + table.fused_decode_s[b]
            + table.fused_context_s[b] * work.context
            + table.attention_s * work.attention
        )

    def scaled(self, factor: float) -> "RankTables":
        """Return the tables with a factor on the time of every iteration."""
        shared = {name: factor * getattr(self, name) for name in self._fields[2:6]}
        return self._replace(rank=self.rank.scaled(factor), **shared)

    def folded(self) -> LatencyTables:
        """Return the tables of a single rank, which are those of a TP group.

        A replica with experts by EP and no DP attention is simulated by these.
        """
        batch = len(self.rank.decode_s)
        tokens = len(self.rank.fused_s)
        return self.rank._replace(
            decode_s=self.rank.decode_s
            + self.experts_s[:batch]
            + self.exchange_s[:batch],
            fused_s=self.rank.fused_s
            + self.experts_prefill_s[:tokens]
            + self.exchange_prefill_s[:tokens],
        )
