"""Write what an engine did: every iteration, every request, or a trace to look at."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from capplan.files import new_file
from capplan.simulator.times import Iterations, RequestTimes

ITERATION_COLUMNS = (
    "it",
    "sched_s",
    "start_s",
    "end_s",
    "ctx_reqs",
    "ctx_tokens",
    "gen_reqs",
    "gen_ctx",
    "running",
    "waiting",
    "free_blocks",
    "preempted",
    "sched",
)
"""Columns of a recorded schedule; several replicas add a ``replica`` column."""

REQUEST_COLUMNS = (
    "arrival_s",
    "scheduled_s",
    "first_token_s",
    "finish_s",
    "longest_gap_s",
    "ttft_s",
    "tpot_s",
    "e2e_s",
    "wait_s",
    "prompt_tokens",
    "output_tokens",
    "replica",
    "preemptions",
    "cached_tokens",
)


def write_iterations(
    iterations: Iterations, path: str | Path, replica_count: int = 1
) -> Path:
    """Write one row per iteration, as recordings of the real scheduler have them.

    ``sched`` lists ``rROW:computed+scheduled`` for each request of the iteration,
    joined by semicolons; ROW counts the requests of the trace from 0.

    Raises
    ------
    InputError
        When the file cannot be written.
    """
    columns = list(ITERATION_COLUMNS) + (["replica"] if replica_count > 1 else [])

    with new_file(path) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(_iteration_rows(iterations, replica_count > 1))
    return Path(path)


def _iteration_rows(
    iterations: Iterations, with_replica: bool
) -> Iterator[list[object]]:
    first = 0
    counts: dict[int, int] = {}
    entries = iterations.entries
    for step in iterations.steps:
        last = int(step["entries_end"])
        replica = int(step["replica"])
        it = counts.get(replica, 0)
        counts[replica] = it + 1
        sched = ";".join(
            f"r{row}:{computed}+{scheduled}"
            for row, computed, scheduled in entries[first:last].tolist()
        )
        gen_reqs = int(step["gen_reqs"])
        row: list[object] = [
            it,
            *(float(step[name]) for name in ("sched_s", "start_s", "end_s")),
            last - first - gen_reqs,
            int(step["ctx_tokens"]),
            gen_reqs,
            *(int(step[name]) for name in ITERATION_COLUMNS[7:12]),
            sched,
        ]
        yield [*row, replica] if with_replica else row
        first = last


def write_requests(times: RequestTimes, path: str | Path) -> Path:
    """Write one row per request of the trace with its times.

    Raises
    ------
    InputError
        When the file cannot be written.
    """
    columns = [np.asarray(getattr(times, name)) for name in REQUEST_COLUMNS]
    with new_file(path) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(REQUEST_COLUMNS)
        for values in zip(*(column.tolist() for column in columns), strict=True):
            writer.writerow(["" if value != value else value for value in values])
    return Path(path)


def write_trace_events(
    iterations: Iterations, times: RequestTimes, path: str | Path
) -> Path:
    """Write the schedule in Chrome's trace event format, for Perfetto.

    A process per replica: one row of iterations, a counter of running, waiting
    and free blocks, and each request as an asynchronous slice.

    Raises
    ------
    InputError
        When the file cannot be written.
    """
    with new_file(path) as stream:
        stream.write('{"displayTimeUnit":"ms","traceEvents":[\n')
        for number, event in enumerate(_events(iterations, times)):
            stream.write((",\n" if number else "") + json.dumps(event))
        stream.write("\n]}\n")
    return Path(path)


def _events(iterations: Iterations, times: RequestTimes) -> Iterator[dict[str, object]]:
    for replica in np.unique(iterations.steps["replica"]).tolist():
        args = {"name": f"replica {replica}"}
        yield {"ph": "M", "pid": replica, "name": "process_name", "args": args}
    for step in iterations.steps:
        replica = int(step["replica"])
        start_us = float(step["start_s"]) * 1e6
        tokens, decodes = int(step["ctx_tokens"]), int(step["gen_reqs"])
        yield {
            "ph": "X",
            "pid": replica,
            "tid": 0,
            "ts": start_us,
            "dur": float(step["end_s"]) * 1e6 - start_us,
            "name": "mixed"
            if tokens and decodes
            else "prefill"
            if tokens
            else "decode",
            "args": {"prefill_tokens": tokens, "decoding": decodes},
        }
        yield {
            "ph": "C",
            "pid": replica,
            "ts": float(step["sched_s"]) * 1e6,
            "name": "queue",
            "args": {"running": int(step["running"]), "waiting": int(step["waiting"])},
        }
        yield {
            "ph": "C",
            "pid": replica,
            "ts": float(step["sched_s"]) * 1e6,
            "name": "free KV blocks",
            "args": {"blocks": int(step["free_blocks"])},
        }
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
