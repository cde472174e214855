"""Which rows of a table are requests of an LLM that were answered."""

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from capplan.workload.readers.cells import impossible, parsed
from capplan.workload.readers.columns import Columns
from capplan.workload.readers.table import Table
from capplan.workload.readers.wrong_header import NEEDED

if TYPE_CHECKING:
    import pandas as pd

_FAILED = (
    r"(?<!no[ _-])(?:fail|error|\berr\b|time.?out|cancel|abort|reject|denied"
    r"|unavailable|throttl)"
)
_NO = ("false", "f", "no", "0", "0.0")
_NONE = (*_NO, "", "-", "none", "null", "nan", "[]", "{}", "ok", "unset", "no error")
"""What a column of errors says where there is none."""
_NO_REQUEST = (
    r"chain|tool|retriever|a?embeddings?|prompt|parser|span|event|agent|evaluator"
    r"|guardrail|(?:a?re)?rank(?:er)?|execute_tool|(?:invoke|create)_agent"
    r"|invoke_workflow|a?moderation|a?transcription|a?speech|a?image_generation"
)
"""Kinds of rows that are no request of an LLM."""
_FIRST_CODE_OF_FAILURE = 400
_ANSWERED = r"true|(?:.*[ _-])?hit|(?!0{8}-0{4}-0)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-.*"
"""What gateways say of an answer of their cache; Helicone has the id it repeats."""
_MOST_BETWEEN = 16
_MOST_MISSING = 0.1
"""Part of the rows that may lack a time or a count; of more the column is wrong."""


def _sums(table: Table, columns: Columns) -> np.ndarray:
    """Return which rows repeat the counts of the calls below them, shape (n,), bool.

    Refuse rows that are the sum of several requests that are not in the table.
    """
    import pandas as pd

    sums = np.zeros(len(table), bool)
    if columns.traced:
        own, parent = (_words(table, name) for name in columns.traced)
        counts = pd.DataFrame(
            {at: parsed(table.frame[columns.names[at]], whole=True) for at in NEEDED}
        )
        has = counts.notna().all(axis=1)
        above = dict(zip(own[~has], parent[~has], strict=True))
        for _ in range(_MOST_BETWEEN):  # calls without counts stand between others
            between = parent.isin(above)
            if not between.any():
                break
            parent = parent.where(~between, parent.map(above))
        below = has & (parent != own) & (parent != "")
        of_calls = counts[below].groupby(parent[below]).sum().reindex(own)
        sums = (of_calls.to_numpy() == counts.to_numpy()).all(axis=1)
    if (name := columns.names.get("requests")) is not None:
        expected = (
            "at most 1: the row is a sum of requests, whose own lengths and times it "
            "does not have; expected a row for each request"
        )
        counted = parsed(table.frame[name], whole=True)
        table.require(sums | ~(counted > 1).to_numpy(), name, expected)
    return sums


def outcomes(table: Table, columns: Columns) -> tuple[np.ndarray, Counter[str]]:
    """Return which rows are answered requests, shape (n,), and how many are not, why.

    Those that failed, by words, codes from 400 on or below 0, no success, or any error;
    that are no request of an LLM: of another kind, such as a tool's span, answered from
    a gateway's cache, sums of calls that have rows, or without a count or a time, where
    few are; and those without output tokens.
    """
    names = columns.names
    failed = np.zeros(len(table), bool)
    if (name := names.get("status")) is not None:
        status = _words(table, name)
        code = parsed(status)
        failed |= status.str.contains(_FAILED).to_numpy()
        failed |= ((code >= _FIRST_CODE_OF_FAILURE) | (code < 0)).to_numpy()
        if "succe" in name.lower():
            failed |= status.isin(_NO).to_numpy()
        if name.endswith("status.code"):
            failed |= (code == 2).to_numpy()  # OpenTelemetry's STATUS_CODE_ERROR
    if (name := names.get("error")) is not None:
        failed |= ~_words(table, name).isin(_NONE).to_numpy()
    rows = {"failed": failed}
    if (name := names.get("kind")) is not None:
        kinds = _words(table, name)
        for kind in kinds[kinds.str.fullmatch(_NO_REQUEST)].unique():
            rows[f"of kind {kind}"] = (kinds == kind).to_numpy()
    if (name := names.get("cache_hit")) is not None:
        hit = _words(table, name).str.fullmatch(_ANSWERED)
        rows["answered from a cache"] = hit.to_numpy(bool)
    rows["sums of the calls below"] = _sums(table, columns)
    counts = table.frame[[names[name] for name in NEEDED]]
    rows["without token counts"] = np.array(counts.isna().all(axis=1))
    output = parsed(table.frame[names["output_tokens"]], whole=True)
    rows["without output tokens"] = (output == 0).to_numpy()
    counted = ~np.any([*rows.values()], axis=0)
    may_be_0 = "prompt_tokens" in columns.details  # cached tokens stand beside it
    arrival = None if columns.has_turns else columns.arrival  # some come after others
    for name in filter(None, (names.get(arrival or ""), *counts)):
        least = -np.inf if name not in counts else 0 if may_be_0 else 1
        for why, those in (
            (f"without {name}", table.frame[name].isna().to_numpy()),
            (f"without a possible {name}", impossible(table.frame[name], least)),
        ):  # of more, the first is refused
            if 0 < (counted & those).sum() <= _MOST_MISSING * len(table):
                rows[why] = those
    right, left_out = np.ones(len(table), bool), Counter[str]()
    for why, those in rows.items():
        left_out[why] = int((right & those).sum())
        right &= ~those
    return right, +left_out


def _words(table: Table, column: str) -> "pd.Series":
    """Return the cells of a column as texts in small letters, empty where missing."""
    cells = table.frame[column].astype(object).fillna("").astype(str)
    return cells.str.strip().str.lower()
