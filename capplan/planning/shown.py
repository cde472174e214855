"""A result in Python: its text, its table, its charts and its files."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd


class Shown:
    """A result that presents itself, once ``capplan.report.shown`` is imported."""

    presenter: ClassVar[Any] = None  # Pages of ``capplan.report.shown``

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

    def _presented(self, present: Callable[[Any], Any], *otherwise: Any) -> Any:
        if Shown.presenter is not None:
            return present(Shown.presenter)
        if otherwise:
            return otherwise[0]
        raise RuntimeError("results are shown by capplan.report.shown; import it first")
