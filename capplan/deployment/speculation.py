"""Speculative decoding: a draft of the next tokens, verified in one iteration.

vLLM 0.32 schedules 1 + k tokens of each decoding request and keeps those up to the
first that is rejected, and one more. How many are accepted is a property of the LLM,
its draft and the texts: it is given or read from a table (``llm/acceptance.py``), never
fitted, since a sweep of load cannot tell it from a factor on the time.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from capplan.deployment.pipeline import Pipeline
from capplan.errors import InputError, check_at_least
from capplan.latency.contract import LatencyTables
from capplan.latency.rank_tables import RankTables

MOST_DRAFTS = 8
"""Tokens that may be drafted for a request in an iteration; tables end there."""

ACCEPTANCE_ERROR = 0.1
"""Relative error of acceptance rates that a plan looks at (assumed)."""

WITHOUT_KV = ("ngram",)
"""Methods that draft without a model: no weights, no KV, no time on the GPU."""

METHODS = ("mtp", "eagle", "eagle3", *WITHOUT_KV)
"""Methods of vLLM's ``--speculative-config`` that are modelled."""


@dataclass(frozen=True)
class Speculation:
    """What ``--speculative-config`` says, and how often drafts are accepted.

    ``rates[i]`` is how often the first i + 1 drafts of an iteration are all accepted,
    vLLM's ``synthetic_acceptance_rates``.
    """

    method: str
    rates: tuple[float, ...]  # one for each drafted token
    draft_share: float = 0.0  # of a decode iteration, for each drafted token
    draft_s: float = 0.0  # added to each drafted token's pass [s]
    source: str = "given"  # of the rates
    how: str = "given"  # "measured" of this LLM, "assumed" where of another

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise InputError(
                f"speculation method {self.method!r} is not modelled; expected one of "
                + ", ".join(METHODS)
            )
        if len(self.rates) > MOST_DRAFTS:
            raise InputError(
                f"num_speculative_tokens is {len(self.rates)}; expected at most "
                f"{MOST_DRAFTS}"
            )
        check_rates(self.rates)
        check_at_least(0, self, "draft_share", "draft_s")

    @property
    def drafts(self) -> int:
        """Tokens drafted for a request in each iteration."""
        return len(self.rates)

    @property
    def verified_tokens(self) -> int:
        """Tokens that a decoding request takes of an iteration's budget. [tokens]"""
        return 1 + self.drafts

    @property
    def lookahead_tokens(self) -> int:
        """Tokens behind these for which a request has KV blocks, for its draft."""
        return 0 if self.method in WITHOUT_KV else self.drafts

    @property
    def drops_block(self) -> bool:
        """Whether the last block found in the prefix cache is computed again."""
        return self.method not in WITHOUT_KV

    @property
    def mean_tokens(self) -> float:
        """Mean tokens that an iteration gives a request. [tokens]"""
        return 1.0 + sum(self.rates)

    @property
    def described(self) -> str:
        """What is drafted and accepted, in words."""
        return (
            f"drafts {self.drafts} tokens by {self.method}, "
            f"{self.mean_tokens:.3g} tokens an iteration"
        )

    def accepting(self, times: float) -> "Speculation":
        """Return it with each rate so many times as high, at most 1."""
        return replace(self, rates=tuple(min(1.0, times * rate) for rate in self.rates))

    @property
    def most_tokens(self) -> int:
        """Most tokens that an iteration can give a request. [tokens]"""
        return 1 + sum(rate > 0 for rate in self.rates)

    def least_iterations(self, output_tokens: np.ndarray) -> np.ndarray:
        """Return the fewest iterations after the prompt's, whatever is accepted."""
        return -(-(output_tokens - 1) // self.most_tokens)

    def tables(self, plain: LatencyTables) -> LatencyTables:
        """Return iteration times with verification and drafting.

        A decode iteration of b requests takes what it takes without drafts, and the
        matrix products of k·b further tokens, F(b·(1 + k)) − F(b): attention reads each
        request's KV once for all of its tokens. With prompts in it the core looks
        ``fused_s`` up at all tokens. The first draft pass is over the verified tokens,
        the k − 1 others over one token of each request; the time of iterations with
        prompts has the same passes.
        """
        batch = np.arange(len(plain.decode_s))
        reaching = plain.reaching(int(batch[-1]) * self.verified_tokens)
        verified = reaching.fused_s[batch * self.verified_tokens]
        extra_s = np.maximum(verified - reaching.fused_s[batch], 0.0)
        passes = self.draft_share * (
            self.drafts * plain.decode_s + extra_s
        ) + self.drafts * self.draft_s * (batch > 0)
        reads = 1.0 + self.drafts * self.draft_share
        return reaching._replace(
            decode_s=plain.decode_s + extra_s + passes,
            decode_context_s=reads * plain.decode_context_s,
            fused_decode_s=plain.fused_decode_s + passes,
            fused_context_s=plain.fused_context_s
            + self.drafts * self.draft_share * plain.decode_context_s,
        )

    def stage_tables(self, plain: LatencyTables, pipeline: Pipeline) -> LatencyTables:
        """Return the time of a step on each stage of a pipeline.

        It verifies its part of the layers. The last stage has the draft's passes, whole
        (vLLM 0.32, v1/worker/gpu/model_runner.py), and a step takes as long on all.
        """
        verifying = replace(self, draft_share=0.0, draft_s=0.0).tables(plain)
        drafting = self.tables(plain)
        stage = pipeline.stage_tables(verifying, self.verified_tokens)
        names = ("decode_s", "decode_context_s", "fused_decode_s", "fused_context_s")
        passes = {
            name: getattr(drafting, name) - getattr(verifying, name) for name in names
        }
        return stage._replace(
            **{name: getattr(stage, name) + passes[name] for name in names}
        )

    def rank_tables(self, plain: RankTables) -> RankTables:
        """Return the parts of ranks that verify drafts.

        Experts and exchange are of all verified tokens, and of the draft's passes: the
        first over these, the k - 1 others over one token of each request. Iterations
        with prompts have the draft's passes in a rank's own part alone.
        """

        def with_draft(part_s: np.ndarray) -> np.ndarray:
            tokens = np.arange(len(part_s))
            one_of_each_s = part_s[-(-tokens // self.verified_tokens)]
            more_s = part_s + (self.drafts - 1) * one_of_each_s
            return part_s + self.draft_share * more_s

        return plain._replace(
            rank=self.tables(plain.rank),
            experts_s=with_draft(plain.experts_s),
            exchange_s=with_draft(plain.exchange_s),
            tokens_per_request=self.verified_tokens,
        )


def check_rates(rates: tuple[float, ...], name: str = "acceptance rates") -> None:
    """Refuse rates outside [0, 1], or that rise."""
    text = ", ".join(f"{rate:g}" for rate in rates)
    if not all(0.0 <= rate <= 1.0 for rate in rates):
        hint = ""
        if all(rate >= 1.0 for rate in rates):
            shares = np.diff([1.0, *rates])
            hint = (
                "; as mean tokens of an iteration they would be the rates "
                + ", ".join(f"{share:g}" for share in np.round(shares, 6))
            )
        raise InputError(f"{name} are {text}; expected each in [0, 1]{hint}")
    if any(later > earlier for earlier, later in pairwise(rates)):
        raise InputError(
            f"{name} are {text}; expected none above the one before: each is how often "
            "all drafts up to that position are accepted"
        )


def rates_of_length(mean_tokens: float, drafts: int) -> tuple[float, ...]:
    """Return the rates of vLLM's ``synthetic_acceptance_length``, of least variance.

    Examples
    --------
    >>> rates_of_length(2.5, 3)
    (1.0, 0.5, 0.0)
    """
    if not 1.0 <= mean_tokens <= drafts + 1:
        raise InputError(
            f"synthetic_acceptance_length is {mean_tokens:g}; expected 1 to "
            f"{drafts + 1}, the tokens that an iteration verifies"
        )
    return tuple(
        round(min(max(mean_tokens - 1.0 - k, 0.0), 1.0), 12) for k in range(drafts)
    )
