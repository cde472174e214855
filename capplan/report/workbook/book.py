"""A workbook that is written row by row: the same content gives the same bytes.

Texts stay texts: XlsxWriter is told to take no string for a formula or a link.
"""

import io
import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

_LONGEST = 32_000
"""Characters of a cell; Excel takes 32,767."""

_FORMS: dict[str, dict[str, Any]] = {
    "text": {},
    "long": {"text_wrap": True, "valign": "top"},
    "head": {"bold": True, "bottom": 1},
    "title": {"bold": True, "font_size": 14},
    "count": {"num_format": "#,##0"},
    "number": {"num_format": "#,##0.####"},
    "share": {"num_format": "0.00%"},
    "usd": {"num_format": "$#,##0.00"},
    "fine": {"num_format": "$#,##0.0000"},
}
_YELLOW: dict[str, Any] = {"bg_color": "#FFF2A8", "border": 1}


class Input(NamedTuple):
    """A number that the reader may change: a yellow cell."""

    value: float
    form: str = "number"


class Formula(NamedTuple):
    """A formula, and what it comes to, for viewers that do not recalculate."""

    text: str  # with its equals sign
    value: float
    form: str = "number"


class Value(NamedTuple):
    """A number with a form."""

    value: float
    form: str = "number"


Cell = str | int | float | None | Input | Formula | Value
"""What a cell may hold; None and what is not finite leave it empty."""


def written(text: str, longest: int) -> str:
    """Return a text that UTF-8 has, as long as its place holds."""
    return text.encode("utf-8", "replace").decode()[:longest]


class Sheet:
    """One sheet of a book, filled from its first row down.

    ``widths`` are those of its columns in characters.
    """

    def __init__(self, book: "Book", name: str, widths: Sequence[float]) -> None:
        self.name, self._book, self._next = name, book, 0
        self._sheet = book.file.add_worksheet(name)
        for column, width in enumerate(widths):
            self._sheet.set_column(column, column, width)

    def row(self, *cells: Cell, form: str = "text") -> int:
        """Write a row of cells; return its number, from 1. ``form`` is of texts."""
        for column, cell in enumerate(cells):
            self._write(self._next, column, cell, form)
        self._next += 1
        return self._next

    def freeze(self) -> None:
        """Keep the rows so far in sight."""
        self._sheet.freeze_panes(self._next, 0)

    def place(self, row: int, column: int) -> str:
        """Return the absolute place of a cell; rows and columns count from 1."""
        return f"{self.name}!${chr(ord('A') + column - 1)}${row}"

    def _write(self, row: int, column: int, cell: Cell, form: str) -> None:
        if isinstance(cell, Formula):
            style = self._book.form(cell.form)
            self._sheet.write_formula(row, column, cell.text, style, cell.value)
            return
        is_input = isinstance(cell, Input)
        if isinstance(cell, Input | Value):
            form, cell = cell.form, cell.value
        if isinstance(cell, str):
            text, style = written(cell, _LONGEST), self._book.form(form)
            self._sheet.write_string(row, column, text, style)
        elif cell is not None and math.isfinite(cell):
            style = self._book.form(form, is_input)
            self._sheet.write_number(row, column, cell, style)


class Book:
    """A workbook in memory."""

    def __init__(self, title: str, made: datetime) -> None:
        # Imported here: only a plan that is asked for a workbook waits for it.
        import xlsxwriter

        self._bytes = io.BytesIO()
        options = {"in_memory": True, "strings_to_formulas": False}
        options |= {"strings_to_urls": False, "strings_to_numbers": False}
        self.file = xlsxwriter.Workbook(self._bytes, options)
        self.file.set_properties({"title": written(title, 255), "created": made})
        self._forms: dict[tuple[str, bool], Any] = {}

    def define(self, name: str, place: str) -> None:
        """Give a cell a name that formulas use."""
        self.file.define_name(name, f"={place}")

    def form(self, name: str, is_input: bool = False) -> Any:
        """Return a form of cells, made once."""
        key = name, is_input
        if key not in self._forms:
            self._forms[key] = self.file.add_format(
                _FORMS[name] | (_YELLOW if is_input else {})
            )
        return self._forms[key]

    def content(self) -> bytes:
        """Return the bytes of the file."""
        self.file.close()
        return self._bytes.getvalue()
