"""Iteration time as the simulator and the planner need it.

Every form of latency model ends as :class:`LatencyTables`: tables indexed by the
batch size and by the tokens of an iteration, linear in the context. Linearity in
the context lets the simulator take n decode iterations in one closed-form step.
"""

from typing import NamedTuple

import numpy as np

from capplan.errors import ProfileError


class LatencyTables(NamedTuple):
    """Iteration time of one replica.

    With b decoding requests whose contexts (KV length with the new token) sum to
    L, and prefill chunks of together T new tokens with attention work
    Q = sum(new * (prefix + new / 2)), an iteration takes

    - without prefill:  ``decode_s[b] + decode_context_s[b] * L``
    - with prefill:     ``fused_s[T + b] + fused_decode_s[b]
      + fused_context_s[b] * L + attention_s * Q``

    All arrays are float64 and contiguous.
    """

    decode_s: np.ndarray  # (max batch + 1,) [s]
    decode_context_s: np.ndarray  # (max batch + 1,) [s/token]
    fused_s: np.ndarray  # (max tokens + 1,) [s]
    fused_decode_s: np.ndarray  # (max batch + 1,) [s]
    fused_context_s: np.ndarray  # (max batch + 1,) [s/token]
    attention_s: float  # [s/token²]
    request_s: float  # front end's time before a request reaches the engine [s]
    prompt_token_s: float = 0.0  # front end's time per prompt token [s/token]
    api_request_s: float = 0.0  # 1 / most requests/s of an API server process [s]

    def check(self, max_batch: int, max_tokens: int) -> "LatencyTables":
        """Return self when an engine with these limits can be simulated with it."""
        for name in self._fields[:5]:
            last = max_tokens if name == "fused_s" else max_batch
            table = getattr(self, name)
            if len(table) <= last:
                raise ProfileError(f"{name} ends at {len(table) - 1}; expected {last}")
            wrong = ~np.isfinite(table)
            # fused_s[T + b] already includes the matrix products of the b decoding
            # requests, so their extra share may be negative; the sum may not.
            if name != "fused_decode_s":
                wrong |= table < 0
            if wrong.any():
                row = int(np.flatnonzero(wrong)[0])
                raise ProfileError(f"{name}[{row}] is {table[row]}; expected >= 0")
        for name in self._fields[5:]:
            if not (np.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise ProfileError(f"{name} is {getattr(self, name)}; expected >= 0")
        if max_batch and float(self.decode_s[1:].min()) <= 0:
            raise ProfileError(
                "decode_s holds 0; expected every iteration to take time"
            )
        return self

    def reaching(self, max_tokens: int) -> "LatencyTables":
        """Return tables for iterations of up to so many tokens.

        ``fused_s`` is continued with the mean slope of its second half.
        """
        last = len(self.fused_s) - 1
        if max_tokens <= last:
            return self
        middle = last // 2
        slope_s = (self.fused_s[last] - self.fused_s[middle]) / max(1, last - middle)
        more_s = self.fused_s[last] + slope_s * np.arange(1, max_tokens - last + 1)
        return self._replace(fused_s=np.concatenate([self.fused_s, more_s]))

    def reading(self, times: float) -> "LatencyTables":
        """Return the tables where decoding reads ``times`` as many bytes of KV."""
        return self._replace(
            decode_context_s=times * self.decode_context_s,
            fused_context_s=times * self.fused_context_s,
        )

    def scaled(self, factor: float) -> "LatencyTables":
        """Return the tables with a factor on the time of every iteration."""
        of_iterations = self._fields[:6]  # the others are the front end's
        return self._replace(
            **{name: factor * getattr(self, name) for name in of_iterations}
        )


def linear_tables(
    fixed_s: float,
    prefill_s: float,
    attention_s: float,
    decode_s: float,
    context_s: float,
    *,
    max_batch: int,
    max_tokens: int,
    request_s: float = 0.0,
) -> LatencyTables:
    """Return the tables of ``c0 + ca*T + cq*Q' + cd*b + ce*L``.

    ``Q'`` is ``sum(new * (prefix + (new + 1) / 2))``; the five coefficients are those
    of ``--latency-ms``.

    Parameters
    ----------
    fixed_s, prefill_s, attention_s, decode_s, context_s
        c0 of every iteration [s], ca per new prompt token [s/token], cq per pair of new
        and earlier token [s/token²], cd per decoding request [s] and ce per token of
        context of the decoding requests [s/token].
    max_batch, max_tokens
        Largest batch and most tokens of an iteration in the tables.
    request_s
        Front end's time per request. [s]

    Examples
    --------
    >>> tables = linear_tables(7e-3, 0, 0, 1e-3, 0, max_batch=2, max_tokens=8)
    >>> tables.decode_s.tolist()
    [0.007, 0.008, 0.009000000000000001]
    """
    batch = np.arange(max_batch + 1, dtype=np.float64)
    tokens = np.arange(max_tokens + 1, dtype=np.float64)
    per_token_s = prefill_s + 0.5 * attention_s
    return LatencyTables(
        decode_s=fixed_s + decode_s * batch,
        decode_context_s=np.full(max_batch + 1, context_s),
        fused_s=fixed_s + per_token_s * tokens,
        fused_decode_s=(decode_s - per_token_s) * batch,
        fused_context_s=np.full(max_batch + 1, context_s),
        attention_s=float(attention_s),
        request_s=float(request_s),
    )
