"""Schedules recorded from a real engine, and the simulator held against them.

A recording is three files: ``req_TAG.csv`` (one row per request), ``iter_TAG.csv.gz``
(one per iteration; ``sched`` is ``id:computed+scheduled;...``) and ``meta_TAG.json``
(the engine's limits and the coefficients of the iteration time).

Where requests are turns of conversations, ``turn_before`` is the number in the id of
the turn before (-1: none), and ``think_s`` the time from its last token to the arrival.
Others name ``session`` and the shared text ``system`` of ``new_tokens``; or a request's
``parent`` (a request, or text N as sN), ``prefix_tokens`` of it, and the one ``after``
whose answer it comes.
"""

import csv
import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from capplan.deployment.adapters import Adapters
from capplan.deployment.engine import EngineSettings
from capplan.deployment.images import Images
from capplan.deployment.pipeline import Pipeline
from capplan.deployment.speculation import Speculation, rates_of_length
from capplan.deployment.tier import Tier
from capplan.latency.contract import LatencyTables, linear_tables
from capplan.simulator.results.times import Simulation
from capplan.simulator.schedulers import parse_scheduler
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

PER_ITERATION = (
    "ctx_reqs",
    "ctx_tokens",
    "gen_reqs",
    "gen_ctx",
    "running",
    "waiting",
    "free_blocks",
    "preempted",
)
ITERATION_TIMES = ("sched_s", "start_s", "end_s")
REQUEST_TIMES = {
    "first_sched_s": "scheduled_s",
    "first_token_s": "first_token_s",
    "finish_s": "finish_s",
}
REQUEST_COUNTS = {
    "preemptions": "preemptions",
    "cached_tokens": "cached_tokens",
    "external_tokens": "tier_tokens",
}
IMAGE_COLUMNS = ("image_tokens", "images", "image_offset")
TOLERANCE_S = 1e-9
SCHEDULER_OF = {"fcfs": "vllm-v1", "priority": "vllm-v1-priority"}

Rows = list[dict[str, str]]


@dataclass(frozen=True)
class Recording:
    """What an engine was given and what it did."""

    trace: Trace
    engine: EngineSettings
    tables: LatencyTables
    requests: Rows
    iterations: Rows


def speculation(given: dict[str, Any]) -> Speculation | None:
    """Return the drafts of a recording's engine."""
    if not given.get("drafts"):
        return None
    rates = rates_of_length(given["synthetic_length"], given["drafts"])
    return Speculation(given["method"], rates)


def pipeline(given: dict[str, Any]) -> Pipeline | None:
    """Return the stages of a recording's engine."""
    stages = given.get("pipeline_parallel_size", 1)
    if stages == 1:
        return None
    hop_s, hop_token_s = (float(ms) / 1e3 for ms in given.get("hop", "0,0").split(","))
    return Pipeline(stages, hop_s=hop_s, hop_token_s=hop_token_s)


def tier(given: dict[str, Any], release: str) -> Tier | None:
    """Return the tier of a recording's engine."""
    if not given.get("cpu_chunks"):
        return None
    return Tier(
        release[:4],
        chunks=given["cpu_chunks_made"],
        blocks_per_chunk=given["blocks_per_chunk"],
        answers=not given["offload_prompt_only"],
        latency_s=given["latency_ms"] / 1e3,
        load_block_s=given["load_ms"] / 1e3,
        store_block_s=given["store_ms"] / 1e3,
    )


def adapters(given: dict[str, Any]) -> Adapters | None:
    """Return the adapters of a recording's engine, which take no time."""
    if not given.get("max_loras"):
        return None
    return Adapters(given["max_loras"], given["max_cpu_loras"])


def encoder(given: dict[str, Any], trace: Trace) -> Images | None:
    """Return the encoder of a recording's engine."""
    size = given.get("encoder_cache_size")
    if not size:
        return None
    image_ms, token_ms = map(float, given["encode"].split(","))
    largest = (trace.image_tokens // np.maximum(1, trace.images)).max()
    return Images(
        encoder_cache_size=size,
        max_image_tokens=int(largest) or 1,
        disable_chunked_mm_input=bool(given["whole_images"]),
        image_s=image_ms / 1e3,
        token_s=token_ms / 1e3,
    )


def tags(folder: Path) -> list[str]:
    """Return the names of the recordings in a folder."""
    return sorted(
        path.stem.removeprefix("meta_") for path in folder.glob("meta_*.json")
    )


def engine_of(
    given: dict[str, Any], trace: Trace, release: str = "0.32.0"
) -> EngineSettings:
    """Return the engine of a case with these requests."""
    groups = given.get("state_groups", 0)
    return EngineSettings(
        scheduler=parse_scheduler(SCHEDULER_OF[given.get("policy", "fcfs")]),
        max_num_batched_tokens=given["max_num_batched_tokens"],
        max_num_seqs=given["max_num_seqs"],
        block_size=given["block_size"],
        kv_blocks=given["blocks"],
        async_scheduling=bool(given["async_sched"]),
        prefix_caching=bool(given["prefix_caching"]),
        max_model_len=given["max_model_len"],
        speculation=speculation(given),
        bounded_groups=groups,
        bounded_blocks=2 + given.get("drafts", 0) if groups else 0,
        state_groups=groups,
        adapters=adapters(given),
        images=encoder(given, trace),
        pipeline=pipeline(given),
        tier=tier(given, release),
    )


def tables_of(given: dict[str, Any]) -> LatencyTables:
    """Return the iteration times of a case."""
    return linear_tables(
        *(float(ms) / 1e3 for ms in given["coef"].split(",")),
        max_batch=given["max_num_seqs"],
        max_tokens=given["max_num_batched_tokens"],
    )


def as_recorded(case: dict[str, Any]) -> tuple[Trace, LatencyTables, EngineSettings]:
    """Return the requests, times and engine of a case that need not be recorded."""
    columns = np.array([row[:6] for row in case["requests"]]).T
    arrival_s, prompts, outputs, groups, shared, _ = columns
    given = {}
    if case.get("policy") == "priority":
        given["priority"] = np.array([row[6] for row in case["requests"]])
    if case.get("adapters"):
        given["adapter"] = np.array(case["adapters"])
    if case.get("images"):
        given |= zip(IMAGE_COLUMNS, np.array(case["images"]).T, strict=True)
    trace = Trace(
        prompts.astype(int),
        outputs.astype(int),
        arrival_s,
        prefix_group=groups.astype(int),
        prefix_tokens=shared.astype(int),
        **given,
    )
    return trace, tables_of(case), engine_of(case, trace)


def turns_of(requests: Rows, shared_tokens: int) -> dict[str, np.ndarray]:
    """Return with which request, or text, each shares how many tokens."""
    rows = {row["id"]: k for k, row in enumerate(requests)}
    newest: dict[str, int] = {}  # turn of each session
    turns = []
    for k, row in enumerate(requests):
        parent, after, group, prefix = -1, -1, -1, 0
        if "parent" in row:
            prefix = int(row["prefix_tokens"])
            parent = rows.get(row["parent"], -1)
            after = rows.get(row["after"], -1)
            group = int(row["parent"][1:]) if prefix and parent < 0 else -1
        elif "session" in row:
            parent = after = newest.get(row["session"], -1)
            newest[row["session"]] = k
            group = -1 if parent >= 0 else int(row["system"])
            prefix = min(shared_tokens, int(row["prompt_len"]))
        elif "turn_before" in row:
            parent = after = rows.get("r" + row["turn_before"], -1)
            group, prefix = int(row["prefix_group"]), int(row["prefix_tokens"])
            group = -1 if parent >= 0 else group
        elif "prefix_group" in row:
            group, prefix = int(row["prefix_group"]), int(row["prefix_tokens"])
        else:
            prefix = min(shared_tokens, int(row["prompt_len"]))
            group = 0 if prefix else -1
        if parent >= 0 and "parent" not in row:
            before = requests[parent]
            prefix = int(before["prompt_len"]) + int(before["output_len"])
        turns.append((parent, after, group, prefix))
    names = ("parent", "after", "prefix_group", "prefix_tokens")
    return dict(zip(names, np.array(turns).T, strict=True))


def read(folder: Path, tag: str) -> Recording:
    """Return one recording."""
    meta = json.loads((folder / f"meta_{tag}.json").read_text())
    given, release = meta["args"], meta.get("vllm", "0.32.0")
    with (folder / f"req_{tag}.csv").open(newline="") as file:
        requests = list(csv.DictReader(file))
    with gzip.open(folder / f"iter_{tag}.csv.gz", "rt", newline="") as file:
        iterations = list(csv.DictReader(file))
    prompts = np.array([int(row["prompt_len"]) for row in requests])
    turns = turns_of(requests, given.get("shared_prefix", 0))
    trace = Trace(
        prompts,
        np.array([int(row["output_len"]) for row in requests]),
        np.where(
            turns["after"] < 0, [float(row["arrival_s"]) for row in requests], np.nan
        ),
        think_s=np.array([float(row.get("think_s", 0)) for row in requests]),
        **turns,
        priority=np.array([int(row.get("priority", 0)) for row in requests]),
        source=tag,
        **{
            name: np.array([int(row[name]) for row in requests])
            for name in (*IMAGE_COLUMNS, "adapter")
            if name in requests[0]
        },
    )
    engine = engine_of(given, trace, release)
    for iteration in iterations:  # those that load are in a queue of their own
        waiting = int(iteration["waiting"]) + int(iteration.get("holding", 0))
        iteration["waiting"] = str(waiting)
    return Recording(trace, engine, tables_of(given), requests, iterations)


def copies(folder: Path, tag: str) -> tuple[int, ...]:
    """Return the loads of an engine with a tier, their blocks, its stores and theirs.

    Without those that had not begun when it stopped.
    """
    with (folder / f"jobs_{tag}.csv").open(newline="") as file:
        jobs = list(csv.DictReader(file))
    counts: list[int] = []
    for kind in ("load", "store"):
        blocks = [int(job["blocks"]) for job in jobs if job["kind"] == kind]
        counts += [len(blocks), sum(blocks)]
    return tuple(counts)


def simulated(recording: Recording, record_iterations: bool) -> Simulation:
    """Return the simulator's account of the same requests.

    With ``record_iterations`` it steps through them, without it jumps.
    """
    return simulate(
        recording.trace,
        fleet_of(recording.tables, recording.engine, 1),
        record_iterations=record_iterations,
    )


def schedules(recording: Recording, simulation: Simulation) -> list[str]:
    """Return what the simulator ran in each iteration, written as the engine's is."""
    assert simulation.iterations is not None
    names = [row["id"] for row in recording.requests]
    entries = [
        f"{names[row]}:{computed}+{scheduled}"
        for row, computed, scheduled in simulation.iterations.entries.tolist()
    ]
    ends = simulation.iterations.steps["entries_end"].tolist()
    return [
        ";".join(entries[first:end])
        for first, end in zip([0, *ends], ends, strict=False)
    ]


def first_difference(recording: Recording) -> str:
    """Return where the simulator first departs from the engine; "" when nowhere."""
    simulation = simulated(recording, record_iterations=True)
    assert simulation.iterations is not None
    steps = simulation.iterations.steps
    for k, (engine, ours) in enumerate(
        zip(recording.iterations, schedules(recording, simulation), strict=False)
    ):
        if engine["sched"] != ours:
            return f"iteration {k}: engine ran {engine['sched']}, simulator {ours}"
        for name in PER_ITERATION:
            if int(engine[name]) != steps[name][k]:
                return (
                    f"iteration {k}: {name} is {engine[name]} in the engine, "
                    f"{steps[name][k]} in the simulator"
                )
        for name in ITERATION_TIMES:
            if abs(float(engine[name]) - steps[name][k]) > TOLERANCE_S:
                return (
                    f"iteration {k}: {name} is {engine[name]} in the engine, "
                    f"{steps[name][k]} in the simulator"
                )
    if len(recording.iterations) != len(steps):
        return f"engine ran {len(recording.iterations)} iterations, not {len(steps)}"
    jumping = simulated(recording, record_iterations=False)
    return _first_request(recording, simulation) or _first_request(recording, jumping)


def _first_request(recording: Recording, simulation: Simulation) -> str:
    """Return the first request that the simulator serves differently; "" if none."""
    for row, engine in enumerate(recording.requests):
        for name, ours in REQUEST_TIMES.items():
            found = getattr(simulation.times, ours)[row]
            if not abs(float(engine[name]) - found) <= TOLERANCE_S:
                return f"request {row}: {name} is {engine[name]}, not {found}"
        for name, ours in REQUEST_COUNTS.items():
            found = getattr(simulation.times, ours)[row]
            if int(engine.get(name, 0)) != found:
                return f"request {row}: {name} is {engine[name]}, not {found}"
    return ""
