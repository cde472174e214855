"""What a paper claims beside what the simulator finds: the rows of docs/how/papers.md.

One rule for all. A figure that is drawn is found with ten seeds; its row has the median
and all of the interval, least to most. It is reproduced where the whole interval lies
in the band, and the band is what the paper states: a range as printed, one side of "at
least" and "at most", of a single figure 10 % to either side, of "up to x" all from no
gain to x, which tells the sign only. Of figures over several settings that one counts
whose median is greatest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

SEEDS = range(10)
ANY = float("-inf"), float("inf")


def about(figure: float) -> tuple[float, float]:
    """Return the band of a single figure, 10 % to either side."""
    low, high = sorted((0.9 * figure, 1.1 * figure))
    return low, high


@dataclass(frozen=True)
class Claim:
    """A figure of a paper, ours of each seed, and the band that the paper states.

    ``found`` is empty where it cannot be had; what is not in its band has its reason in
    ``why``. A figure that no paper states has the band ``ANY``.
    """

    what: str
    published: str
    found: Sequence[float] | float
    band: tuple[float, float]
    unit: str = ""
    why: str = ""

    def cells(self) -> tuple[str, ...]:
        """Return the cells of its row of a table."""
        values = np.atleast_1d(np.asarray(self.found, float))
        low, high = self.band
        is_sign = self.published.startswith("up to")  # no gain is none
        above = low < values if is_sign else low <= values
        kept = int((above & (values <= high)).sum())
        here, verdict = "–", "cannot be had"
        if len(values):
            here = f"{np.median(values):.3g}"
            verdict = "sign only" if is_sign else "yes"
            verdict = verdict if kept == len(values) else "**no**"
        if len(values) > 1:
            here += f" ({values.min():.3g} to {values.max():.3g})"
            if 0 < kept < len(values):
                verdict += f", {kept} of {len(values)}"
        return (
            self.what,
            self.published,
            here + self.unit * bool(len(values)),
            self._band(),
            "–" if self.band == ANY and len(values) else verdict,
            "" if verdict == "yes" else self.why,
        )

    def _band(self) -> str:
        low, high = self.band
        if self.band == ANY:
            return "–"
        if high == ANY[1]:
            return f"at least {low:g}{self.unit}"
        if low == ANY[0]:
            return f"at most {high:g}{self.unit}"
        return f"{low:.3g} to {high:.3g}{self.unit}"


def greatest(points: Mapping[str, Sequence[float]]) -> tuple[str, Sequence[float]]:
    """Return where the median over seeds is greatest, and the figures of its seeds."""
    where = max(points, key=lambda each: float(np.median(points[each])))
    return where, points[where]


def table(claims: list[Claim]) -> str:
    """Return claims as a Markdown table."""
    head = ("claim", "published", "here", "band", "in it", "why")
    return markdown(head, [claim.cells() for claim in claims])


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = (head, ["---"] * len(head), *rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
