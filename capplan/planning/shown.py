"""A result in Python: its text, its table, its charts and its files."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd


class Presenter(Protocol):
    """How results are presented; ``report`` has it, a floor above."""

    def text(self, result: Any) -> str:
        """Return a paragraph."""

    def html(self, result: Any) -> str:
        """Return a fragment of HTML: the answer and its main table."""

    def frame(self, result: Any, table: str | None) -> "pd.DataFrame":
        """Return a table of the result's CSV files."""

    def drawn(self, result: Any) -> Any:
        """Return the charts."""

    def save(self, result: Any, path: "str | Path") -> "list[Path]":
        """Write the files of the result into a folder, or one of them."""


class Shown:
    """A result that presents itself, once ``capplan.report.shown`` is imported."""

    presenter: ClassVar[Presenter | None] = None

    def __repr__(self) -> str:
        """Return the answer in a paragraph."""
        return self._presented(lambda by: by.text(self), f"<{type(self).__name__}>")

    def _repr_html_(self) -> str | None:
        """Return what a notebook shows: the answer and its main table."""
        return self._presented(lambda by: by.html(self), None)

    def to_pandas(self, table: str | None = None) -> "pd.DataFrame":
        """Return a table of the result's CSV files as a DataFrame.

        ``table`` is the name of the file without ``.csv``; by default the main one.
        """
        return self._presented(lambda by: by.frame(self, table))

    def plot(self) -> Any:
        """Return the report's charts: a notebook shows them, ``save`` writes them."""
        return self._presented(lambda by: by.drawn(self))

    def save(self, path: "str | Path") -> "list[Path]":
        """Write the files of ``--out`` into a folder; return their paths.

        A path that ends in .json, .csv, .html or .md is that file alone.
        """
        return self._presented(lambda by: by.save(self, path))

    def _presented(self, present: Callable[[Presenter], Any], *otherwise: Any) -> Any:
        if Shown.presenter is not None:
            return present(Shown.presenter)
        if otherwise:
            return otherwise[0]
        raise RuntimeError("results are shown by capplan.report.shown; import it first")
