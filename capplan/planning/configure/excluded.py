"""Configurations that a plan leaves out."""

from dataclasses import dataclass

from capplan.llm.layout import Layout


@dataclass(frozen=True)
class Excluded:
    """A GPU type and layout that cannot serve the LLM, and why."""

    gpu: str
    tp: int  # of a rank
    reason: str
    layout: Layout | None = None  # None: TP alone

    def __str__(self) -> str:
        return f"{self.gpu} × {(self.layout or Layout(self.tp)).text}"

    @property
    def key(self) -> tuple[str, str]:
        """GPU type and layout."""
        return self.gpu, str(self.layout or Layout(self.tp))
