"""Turns of conversations by columns: id, parent, prefix_tokens, after, think_s.

A parent that is no id is the name of a text. ``after`` may have several ids, with a
semicolon between them or as a list. Without ``after``, one that has no arrival but a
think time comes after its parent.
"""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from capplan.errors import InputError
from capplan.workload.forest import NONE, first_wrong
from capplan.workload.readers.cells import is_numeric, parsed
from capplan.workload.readers.columns import Columns
from capplan.workload.readers.table import Table
from capplan.workload.trace import MOST_REQUESTS

if TYPE_CHECKING:
    import pandas as pd

_WHOLE = {"turn": 0, "step": 0, "reasoning_tokens": 0, "agent": -(2**31)}
"""Columns of whole numbers and the least of each; empty cells are 0."""


class Turns:
    """Who shares with whom and waits for whom, of the rows of a table."""

    def __init__(self, table: Table, columns: Columns) -> None:
        self._table, self._names = table, columns.names
        if {"parent", "prefix_group"} <= self._names.keys():
            raise InputError(
                f"{table.path}: columns parent and prefix_group; expected one of them"
            )
        ids = table.frame[self._names["id"]]
        table.require(ids.notna().to_numpy(), self._names["id"], "an id of its own")
        first = ~ids.duplicated().to_numpy()
        table.require(first, self._names["id"], "an id that no other row has")
        self._row = {str(name): row for row, name in enumerate(ids)}
        self.parent, self.text = self._parents()
        self.after, self.joins = self._afters()
        arrival = columns.names.get(columns.arrival or "")
        none = np.ones(len(table), bool)
        timeless = none if arrival is None else table.frame[arrival].isna().to_numpy()
        self.think_s = self._think_s()
        follows = timeless & (self.parent >= 0) & np.isfinite(self.think_s)
        self.after = np.where((self.after < 0) & follows, self.parent, self.after)
        if arrival is not None:
            right = timeless | (self.after < 0)
            table.require(right, arrival, "no arrival beside after")

    @property
    def waits(self) -> np.ndarray:
        """Which rows come after the answers of others, shape (n,), bool."""
        return self.after >= 0

    def columns(self, given: dict[str, Any], arrival_s: Any) -> dict[str, Any]:
        """Return the columns of turns beside those given, and refuse wrong ones."""
        n = len(self._table)
        prefix = given.get("prefix_tokens", np.zeros(n, np.int64))
        group = given.get("prefix_group", self.text)
        shares = (self.parent >= 0) | (group >= 0)
        column = self._names.get("prefix_tokens", "")
        self._table.require(shares | (prefix == 0), column, "0, or more with a parent")
        found: dict[str, Any] = {
            "parent": self.parent,
            "after": self.after,
            "joins": self.joins,
            "prefix_group": group,
            "think_s": np.nan_to_num(self.think_s),
        }
        for name, least in _WHOLE.items():
            if name in self._names:
                table = with_zeros(self._table, self._names[name])
                found[name] = table.whole(self._names[name], least, MOST_REQUESTS)
        asked = SimpleNamespace(**{**given, **found}, arrival_s=arrival_s)
        if wrong := first_wrong(asked):
            row, name, expected = wrong
            self._table.refuse(row, self._names.get(name, "parent"), expected)
        return found | {"text_names": self.text_names}

    def _parents(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the row of each parent and the number of each text, shape (n,)."""
        self.text_names: tuple[str, ...] = ()
        none = np.full(len(self._table), NONE)
        if "parent" not in self._names:
            return none, none
        cells, names = self._cells("parent")
        rows = np.array([*(self._row.get(name, NONE) for name in names), NONE])
        texts = [name for name in names if name not in self._row and name != "-1"]
        number = {name: k for k, name in enumerate(texts)}
        self.text_names = tuple(texts)
        of = np.array([*(number.get(name, NONE) for name in names), NONE])
        return rows[cells], of[cells]

    def _afters(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the first row that each waits for, and pairs with the others."""
        none = np.full(len(self._table), NONE)
        if "after" not in self._names:
            return none, np.zeros((0, 2), np.int64)
        cells, names = self._cells("after")
        listed = [
            [] if name == "-1" and name not in self._row else self._listed(name)
            for name in names
        ]
        right = np.array([*(None not in rows for rows in listed), True])[cells]
        self._table.require(right, self._names["after"], "the id of a request")
        first = np.array([*(rows[0] if rows else NONE for rows in listed), NONE])
        joins = [
            (row, other)
            for row in np.flatnonzero(cells >= 0).tolist()
            for other in listed[cells[row]][1:]
        ]
        return first[cells], np.array(joins, np.int64).reshape(-1, 2)

    def _listed(self, name: str) -> list[Any]:
        if name in self._row:
            return [self._row[name]]
        return [self._row.get(part.strip()) for part in name.split(";")]

    def _cells(self, column: str) -> tuple[np.ndarray, list[str]]:
        cells: pd.Series = self._table.frame[self._names[column]]
        return cells.cat.codes.to_numpy(), [*map(str, cells.cat.categories)]

    def _think_s(self) -> np.ndarray:
        """Return the think times, NaN where a cell is empty, shape (n,). [s]"""
        if "think_s" not in self._names:
            return np.full(len(self._table), np.nan)
        cells = self._table.frame[self._names["think_s"]]
        values = (cells if is_numeric(cells) else parsed(cells)).to_numpy(float)
        right = cells.isna().to_numpy() | ((values >= 0) & (values < np.inf))
        self._table.require(right, self._names["think_s"], "seconds from 0, or nothing")
        return values


def spread(values: np.ndarray | None, rows: np.ndarray) -> np.ndarray | None:
    """Return values at some rows, shape (n,), bool, and NaN at the others."""
    if values is None:
        return None
    found = np.full(len(rows), np.nan)
    found[rows] = values
    return found


def with_zeros(table: Table, name: str | None) -> Table:
    """Return a table in which empty cells of a column are 0."""
    if name is None:
        return table
    return Table(table.path, table.frame.assign(**{name: table.frame[name].fillna(0)}))


def refuse_left_out(table: Table, columns: Columns, right: np.ndarray) -> None:
    """Refuse a row whose parent, or whose wait, is a row that is left out."""
    lost = set(table.frame[columns.names["id"]][~right].astype(str))
    for column in ("parent", "after"):
        if (name := columns.names.get(column)) is None:
            continue
        cells = table.frame[name].astype(object).fillna("").astype(str)
        cut = cells.map(lambda cell: bool({cell, *cell.split(";")} & lost)).to_numpy()
        table.require(~(cut & right), name, "a request that was answered")
