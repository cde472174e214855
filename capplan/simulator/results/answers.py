"""What users who wait for their answers were answered in a span of time."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from capplan.simulator.results.request_times import RequestTimes


@dataclass(frozen=True)
class Answers:
    """Requests that finished in a span of time, and the stay of those asked in it."""

    count: int  # requests that finished
    width_s: float  # of the span [s]
    prompt_tokens: int  # of these requests [tokens]
    output_tokens: int  # of these requests [tokens]
    given_tokens: float  # output tokens given in the span, of any request [tokens]
    asked: int  # requests asked in the span
    stays_s: float  # of those asked, from asking to the last token, together [s]

    @property
    def rate_per_s(self) -> float:
        """Rate of finished requests. [requests/s]"""
        return self.count / self.width_s if self.width_s > 0 else float("nan")

    @property
    def output_tokens_per_s(self) -> float:
        """Output tokens given, over the time. [tokens/s]"""
        return self.given_tokens / self.width_s if self.width_s > 0 else 0.0

    def users(self, mean_think_s: float) -> float:
        """Return how many users that makes by Little's law; NaN where none asked."""
        if not self.asked:
            return float("nan")
        return self.rate_per_s * (self.stays_s / self.asked + mean_think_s)


def answers_in(
    times: RequestTimes, asked: RequestTimes, from_s: float, until_s: float
) -> Answers:
    """Return the answers of a span; until the last one where it has no width. [s]

    ``asked`` are the requests of the table that count.
    """
    if until_s <= from_s:
        until_s = float(times.finish_s.max())
    done = (times.finish_s > from_s) & (times.finish_s <= until_s)
    given = times.output_tokens_by(until_s) - times.output_tokens_by(from_s)
    return Answers(
        count=int(done.sum()),
        width_s=until_s - from_s,
        prompt_tokens=int(times.prompt_tokens[done].sum()),
        output_tokens=int(times.output_tokens[done].sum()),
        given_tokens=given,
        asked=len(asked),
        stays_s=float(np.sum(asked.e2e_s)),
    )


def together(parts: Sequence[Answers]) -> Answers:
    """Return the answers of several spans."""
    columns = {
        field.name: sum(getattr(part, field.name) for part in parts)
        for field in fields(Answers)
    }
    return Answers(**columns)
