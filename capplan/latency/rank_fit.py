"""Fit the profile of ranks that step together to the parts of their iterations."""

from typing import NamedTuple

import numpy as np

from capplan.latency.aiconfigurator import Source, kernel_identity
from capplan.latency.fit import Fit, fit
from capplan.latency.profile import ErrorRecord, validity_of
from capplan.latency.rank_kernels import (
    IMBALANCE_SOURCE,
    Part,
    Parts,
    exchange_name,
    imbalance_of,
)
from capplan.latency.rank_profile import RankProfile
from capplan.latency.terms import PartTerms

_ERRORS_OF = {
    "experts": ("experts", "experts_prefill"),
    "exchange": ("exchange", "exchange_prefill"),
}
"""Tables of parts whose errors are recorded together."""


class RanksFit(NamedTuple):
    """The profile of ranks, the fit of what one does alone, and the parts' times."""

    profile: RankProfile
    fit: Fit
    parts: Parts


def fit_ranks(
    parts: Parts,
    source: Source,
    tp: int,
    gpu: str,
    llm: str,
    *,
    form: str | None = None,
    is_balanced: bool = False,
) -> RanksFit:
    """Return the profile that fits the parts, each with its own errors.

    ``is_balanced`` is of an engine that levels the experts' load (EPLB); others have
    the imbalance of :func:`.rank_kernels.imbalance_of`.
    """
    alone = fit(parts.alone, form=form)
    knots = {name: _terms(part) for name, part in _shared(parts).items()}
    imbalance = 1.0 if is_balanced else imbalance_of(source.ep)
    content = kernel_identity(source, tp, gpu, llm)._asdict() | alone._asdict()
    for name in ("kv_tokens", "scores"):
        del content[name]
    off = {
        name: _error(*((getattr(parts, each), knots[each]) for each in of))
        for name, of in _ERRORS_OF.items()
    }
    profile = RankProfile.model_validate(
        content
        | knots
        | {
            "dp": source.dp,
            "ep": source.ep,
            "all_to_all": exchange_name(source),
            "nextn": source.nextn,
            "imbalance": imbalance,
            "imbalance_source": IMBALANCE_SOURCE if imbalance > 1 else "",
            "validity": validity_of(parts.alone),
            "errors": alone.errors | off,
        }
    )
    return RanksFit(profile, alone, parts)


def _shared(parts: Parts) -> dict[str, Part]:
    return {
        name: part for name, part in parts._asdict().items() if isinstance(part, Part)
    }


def _terms(part: Part) -> PartTerms:
    """Return knots that do not fall; where measured times do, their mean is taken."""
    from scipy.optimize import isotonic_regression

    rising_s = isotonic_regression(part.seconds, weights=_weights(part.seconds)).x
    return PartTerms(tokens=part.tokens.tolist(), tokens_s=rising_s.tolist())


def _weights(seconds: np.ndarray) -> np.ndarray:
    """Return weights by which relative errors count alike."""
    return np.maximum(seconds, 1e-3 * seconds.max() + 1e-12) ** -2


def _error(*of: tuple[Part, PartTerms]) -> ErrorRecord:
    """Return the relative errors at the knots, and of the lines between them."""
    fitted = np.concatenate(
        [_off(part.tokens, part.seconds, terms) for part, terms in of]
    )
    unseen = np.concatenate(
        [_off(part.between, part.between_s, terms) for part, terms in of]
    )
    return ErrorRecord.of(len(fitted) + len(unseen), fitted, unseen)


def _off(tokens: np.ndarray, seconds: np.ndarray, terms: PartTerms) -> np.ndarray:
    """Return relative errors; 0 where a part takes no time, as on one GPU."""
    found_s = terms.at(tokens)
    return np.where(seconds > 0, found_s / np.where(seconds > 0, seconds, 1) - 1, 0.0)
