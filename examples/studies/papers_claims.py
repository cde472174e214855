"""What a paper claims beside what the simulator finds: the rows of docs/papers.md."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """A figure of a paper, ours, and the band in which ours is expected.

    ``low`` and ``high`` come from what the paper's own settings allow, not from our
    runs; a claim outside its band has its reason in ``why``.
    """

    what: str
    published: str
    found: float
    low: float
    high: float
    unit: str = ""
    why: str = ""

    @property
    def holds(self) -> bool:
        """Whether ours lies in the band."""
        return self.low <= self.found <= self.high

    def cells(self) -> tuple[str, ...]:
        """Return the cells of its row of a table."""
        band = f"{self.low:.3g} to {self.high:.3g}"
        if self.high == float("inf"):
            band = f"at least {self.low:g}"
        elif self.low == float("-inf"):
            band = f"at most {self.high:g}"
        verdict = "yes" if self.holds else "**no**"
        return (
            self.what,
            self.published,
            f"{self.found:.3g}{self.unit}",
            f"{band}{self.unit}",
            verdict,
            self.why,
        )


def table(claims: list[Claim]) -> str:
    """Return claims as a Markdown table."""
    head = ("claim", "published", "here", "band", "in it", "why")
    return markdown(head, [claim.cells() for claim in claims])


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = (head, ["---"] * len(head), *rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
