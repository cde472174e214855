"""Which rows of a table are requests of an LLM that were answered."""

from typing import TYPE_CHECKING

import numpy as np

from capplan.workload.readers.columns import Columns
from capplan.workload.readers.table import Table, parsed

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


def refuse_sums(table: Table, columns: Columns) -> None:
    """Refuse rows that are the sum of several requests."""
    if (name := columns.names.get("requests")) is not None:
        expected = (
            "at most 1: the row is a sum of requests, whose own lengths and times it "
            "does not have; expected a row for each request"
        )
        counted = parsed(table.frame[name], whole=True)
        table.require(~(counted > 1).to_numpy(), name, expected)


def outcomes(
    table: Table, columns: Columns
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return output tokens, 1 where not a number, and two kinds of rows, shape (n,).

    Those that failed, by columns of statuses and errors: words of failure, codes from
    400 on or below 0, no success, or any error. Of the others those that are no request
    of an LLM: without token counts, of another kind, such as a tool's span, or answered
    from a gateway's cache.
    """
    names = columns.names
    output = (
        parsed(table.frame[names["output_tokens"]], whole=True).fillna(1).to_numpy()
    )
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
    counted = [names[name] for name in ("prompt_tokens", "output_tokens")]
    other = np.array(table.frame[counted].isna().all(axis=1))
    if (name := names.get("kind")) is not None:
        other |= _words(table, name).str.fullmatch(_NO_REQUEST).to_numpy()
    if (name := names.get("cache_hit")) is not None:
        other |= (_words(table, name) == "true").to_numpy()
    return output, failed, other & ~failed


def _words(table: Table, column: str) -> "pd.Series":
    """Return the cells of a column as texts in small letters, empty where missing."""
    return (
        table.frame[column]
        .astype(object)
        .fillna("")
        .astype(str)
        .str.strip()
        .str.lower()
    )
