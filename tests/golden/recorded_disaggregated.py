"""Recordings of disaggregated serving, as ``record_disaggregated.py`` wrote them.

A recording is three files: ``req_TAG.csv`` (one row per request), ``iter_TAG.csv.gz``
(one per iteration of any engine, in order of scheduling) and ``meta_TAG.json``.
"""

import csv
import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from recorded import SCHEDULER_OF, speculation

from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import LatencyTables, linear_tables
from capplan.simulator.schedulers import parse_scheduler
from capplan.workload.trace import Trace


class Copy(NamedTuple):
    """One prompt's KV on its way from a prefill engine to a decode engine."""

    request: int  # row
    taken_s: float  # room was made for it
    start_s: float
    ready_s: float
    blocks: int
    told_s: float  # the decode engine's scheduler heard of its end; nan: no engine
    freed_s: float  # so did the prefill engine's; nan: no engine


class Part(NamedTuple):
    """What one request does in an iteration."""

    request: int  # row
    computed: int  # tokens before it
    scheduled: int


class Iteration(NamedTuple):
    """One iteration of one engine."""

    engine: str
    sched_s: float
    start_s: float
    end_s: float
    ctx_reqs: int
    ctx_tokens: int
    gen_reqs: int
    gen_ctx: int
    running: int
    waiting: int
    free_blocks: int
    preempted: int
    holding: int
    held: int
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Recording:
    """What a deployment was given and what it did."""

    given: dict[str, Any]
    engine: EngineSettings
    tables: LatencyTables
    trace: Trace
    requests: list[dict[str, str]]
    copies: list[Copy]
    iterations: list[Iteration]

    @property
    def engines(self) -> list[str]:
        """Names of the prefill engines, then of the decode engines."""
        return [
            f"{kind}{k}"
            for kind, count in (("p", "prefill"), ("d", "decode"))
            for k in range(self.given[count])
        ]

    @property
    def case(self) -> dict[str, Any]:
        """What ``record_disaggregated.py`` needs to record it again."""
        rows = [
            (
                float(row["arrival_s"]),
                int(row["prompt_len"]),
                int(row["output_len"]),
                int(row["prefix_group"]),
                int(row["prefix_tokens"]),
                -1,
                *([int(row["priority"])] if "priority" in row else []),
            )
            for row in self.requests
        ]
        return {**self.given, "requests": rows}

    def of(self, engine: str) -> list[Iteration]:
        """Return the iterations of one engine."""
        return [one for one in self.iterations if one.engine == engine]


def number(text: str) -> float:
    """Return a cell's number, nan for an empty one."""
    return float(text or "nan")


def read(folder: Path, tag: str) -> Recording:
    """Return one recording."""
    given = json.loads((folder / f"meta_{tag}.json").read_text())["args"]
    with (folder / f"req_{tag}.csv").open(newline="") as file:
        requests = list(csv.DictReader(file))
    with gzip.open(folder / f"iter_{tag}.csv.gz", "rt", newline="") as file:
        iterations = [_iteration(row) for row in csv.DictReader(file)]
    engine = EngineSettings(
        max_num_batched_tokens=given["max_num_batched_tokens"],
        max_num_seqs=given["max_num_seqs"],
        block_size=given["block_size"],
        kv_blocks=given["blocks"],
        async_scheduling=bool(given["async_sched"]),
        prefix_caching=bool(given["prefix_caching"]),
        max_model_len=given["max_model_len"],
        speculation=speculation(given),
        scheduler=parse_scheduler(SCHEDULER_OF[given.get("policy", "fcfs")]),
    )
    tables = linear_tables(
        *(float(ms) / 1e3 for ms in given["coef"].split(",")),
        max_batch=engine.max_num_seqs,
        max_tokens=engine.max_num_batched_tokens,
    )
    columns = {
        name: np.array([int(row[name]) for row in requests])
        for name in ("prompt_len", "output_len", "prefix_group", "prefix_tokens")
    }
    trace = Trace(
        columns["prompt_len"],
        columns["output_len"],
        np.array([float(row["arrival_s"]) for row in requests]),
        prefix_group=columns["prefix_group"],
        prefix_tokens=columns["prefix_tokens"],
        priority=np.array([int(row.get("priority", 0)) for row in requests]),
        source=tag,
    )
    copies = sorted(_copies(requests), key=lambda copy: (copy.start_s, copy.request))
    return Recording(given, engine, tables, trace, requests, copies, iterations)


def _iteration(row: dict[str, str]) -> Iteration:
    parts = []
    for part in row["sched"].split(";"):
        name, tokens = part.split(":")
        computed, scheduled = tokens.split("+")
        parts.append(Part(int(name[1:]), int(computed), int(scheduled)))
    numbers = {
        name: (float if name.endswith("_s") else int)(row[name])
        for name in Iteration._fields
        if name not in ("engine", "parts")
    }
    return Iteration(engine=row["engine"], **numbers, parts=tuple(parts))


def _copies(requests: list[dict[str, str]]) -> list[Copy]:
    return [
        Copy(
            index,
            float(row["taken_s"]),
            float(row["copy_s"]),
            float(row["ready_s"]),
            int(row["copied_blocks"]),
            number(row["told_s"]),
            number(row["prefill_told_s"]),
        )
        for index, row in enumerate(requests)
        if row["ready_s"]
    ]
