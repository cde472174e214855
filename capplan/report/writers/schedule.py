"""Write the schedule of the engines: iterations as CSV, or Chrome's trace events."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from capplan.files import new_file
from capplan.report.render.csv_table import write_csv_file
from capplan.simulator.results.request_times import RequestTimes
from capplan.simulator.results.times import Iterations

ITERATION_COLUMNS: tuple[str, ...] = ("it", "sched_s", "start_s", "end_s", "ctx_reqs")
ITERATION_COLUMNS += ("ctx_tokens", "gen_reqs", "gen_ctx", "running", "waiting")
ITERATION_COLUMNS += ("free_blocks", "preempted", "sched")
"""Columns of a recorded vLLM schedule; several replicas add a ``replica`` column."""


def write_iterations(
    iterations: Iterations, path: str | Path, replica_count: int = 1
) -> Path:
    """Write one row per iteration, in the format of recorded vLLM schedules.

    ``sched`` lists ``rROW:computed+scheduled`` for each request of the iteration,
    separated by semicolons; ROW is the request's index in the trace.
    """
    several = replica_count > 1
    heading = (*ITERATION_COLUMNS, "replica") if several else ITERATION_COLUMNS
    return write_csv_file(path, heading, _iteration_rows(iterations, several))


def _iteration_rows(iterations: Iterations, several: bool) -> Iterator[list[object]]:
    first = 0  # entries of all iterations are in one table, one after the other
    counts: dict[int, int] = {}
    for step in iterations.steps:
        last, replica = int(step["entries_end"]), int(step["replica"])
        it = counts.get(replica, 0)  # iterations are numbered on each replica
        counts[replica] = it + 1
        row: list[object] = [
            it,
            *(step[name].item() for name in ITERATION_COLUMNS[1:-1]),
            ";".join(
                f"r{request}:{computed}+{scheduled}"
                for request, computed, scheduled in iterations.entries[
                    first:last
                ].tolist()
            ),
        ]
        yield [*row, replica] if several else row
        first = last


def write_trace_events(
    iterations: Iterations, times: RequestTimes, path: str | Path
) -> Path:
    """Write the schedule as Chrome trace events, for chrome://tracing or Perfetto.

    Each replica is a process with a slice per iteration, counters of running and
    waiting requests and of free KV blocks, and an asynchronous slice per request.
    """
    with new_file(path) as stream:
        stream.write('{"displayTimeUnit":"ms","traceEvents":[\n')
        # Event by event: the whole list may not fit in memory.
        for index, event in enumerate(_events(iterations, times)):
            stream.write((",\n" if index else "") + json.dumps(event))
        stream.write("\n]}\n")
    return Path(path)


def _events(iterations: Iterations, times: RequestTimes) -> Iterator[dict[str, Any]]:
    for replica in np.unique(iterations.steps["replica"]).tolist():
        args = {"name": f"replica {replica}"}
        yield {"ph": "M", "pid": replica, "name": "process_name", "args": args}
    for step in iterations.steps:
        yield from _iteration_events(step)
    for row in range(len(times)):
        spans = (
            ("waiting", times.arrival_s[row], times.scheduled_s[row]),
            ("prefill", times.scheduled_s[row], times.first_token_s[row]),
            ("decode", times.first_token_s[row], times.finish_s[row]),
        )
        for name, begin_s, end_s in spans:
            common = {"pid": int(times.replica[row]), "cat": "request", "id": row}
            named = {"name": f"r{row} {name}", **common}
            yield {"ph": "b", "ts": float(begin_s) * 1e6, **named}
            yield {"ph": "e", "ts": float(end_s) * 1e6, **named}


def _iteration_events(step: np.void) -> Iterator[dict[str, Any]]:
    """Yield the slice of an iteration and the counters at its scheduling."""
    replica = int(step["replica"])
    start_us = float(step["start_s"]) * 1e6
    tokens, decoding = int(step["ctx_tokens"]), int(step["gen_reqs"])
    phase = "mixed" if tokens and decoding else "prefill" if tokens else "decode"
    yield {
        "ph": "X",
        "pid": replica,
        "tid": 0,
        "ts": start_us,
        "dur": float(step["end_s"]) * 1e6 - start_us,
        "name": phase,
        "args": {"prefill_tokens": tokens, "decoding": decoding},
    }
    counter = {"ph": "C", "pid": replica, "ts": float(step["sched_s"]) * 1e6}
    queue = {"running": int(step["running"]), "waiting": int(step["waiting"])}
    yield {**counter, "name": "queue", "args": queue}
    blocks = {"blocks": int(step["free_blocks"])}
    yield {**counter, "name": "free KV blocks", "args": blocks}
