"""Profile an engine: one process per TP degree, every point on disk at once."""

import os
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from capplan.csv_file import read_rows
from capplan.errors import InputError
from capplan.profiling.backend import EngineFacts, EngineRequest, facts_from_document
from capplan.profiling.catalog_names import gpu_name, llm_name
from capplan.profiling.measurement_record import (
    check_same_engine,
    read_record,
    record_path,
    write_record,
)
from capplan.profiling.parent import EngineFailure, EngineProcess
from capplan.profiling.plan import ProfilePlan, density, plan_profile
from capplan.profiling.point_file import PointFile, Row
from capplan.profiling.repeats import measure_in_turn
from capplan.profiling.scenes import Ladder, Sample, Scene
from capplan.profiling.settings import ProfileSettings
from capplan.shipped import own_version

_ADVICE = Path(__file__).parent / "data/advice.csv"
"""Patterns of reasons, and remedies; the first that is found counts."""
GROUP_SCENES = 8
"""Scenes whose repeats are interleaved; a kill loses at most this many."""
SCHEMA = "capplan.measurement/1"
NO_HARDWARE = "unknown-device"
_SEED = 20240517


class Measured(NamedTuple):
    """Result of one tensor-parallel degree."""

    gpu: str
    llm: str
    tp: int
    points_path: Path
    record_path: Path
    log_path: Path  # what the engine printed
    point_count: int  # points on disk
    noisy_count: int  # of them, points whose repeats disagree
    failure: str | None  # the engine's reason for stopping; None when complete
    advice: str | None  # how to avoid the failure
    skipped: tuple[tuple[str, str], ...]  # what was left out, and why
    profile_path: Path | None = None  # where a profile was fitted to the points
    refusal: str = ""  # why none was


OnProgress = Callable[[int, float, float, str], None]
"""``on_progress(tp, work done, total work, activity)``."""


def profile(settings: ProfileSettings, on_progress: OnProgress) -> list[Measured]:
    """Measure each tensor-parallel degree; a failure of one leaves the others."""
    density(settings.density)  # a wrong name is refused before an engine starts
    return [_measure_degree(settings, tp, on_progress) for tp in settings.tp]


def scene_work(scene: Scene, budget_tokens: int) -> float:
    """Return the work of a scene; an iteration counts as 256 tokens more. [tokens]"""
    if isinstance(scene, Ladder):
        fill = scene.rungs[0].batch * scene.context
        chunks = sum(sum(rung.chunks) for rung in scene.rungs)
        return fill + chunks + 256.0 * (fill / budget_tokens + scene.iterations)
    tokens = scene.count * scene.prompt_tokens
    return (1 + scene.repeats) * (tokens + 256.0 * len(scene.points(budget_tokens)))


def _measure_degree(
    settings: ProfileSettings, tp: int, on_progress: OnProgress
) -> Measured:
    llm = llm_name(settings.llm)
    settings.out.mkdir(parents=True, exist_ok=True)
    # The hardware's name, and so the folder, is known only from the engine.
    early_log = settings.out / f".{llm}-tp{tp}-{os.getpid()}.log"
    on_progress(tp, 0, 0, "looking for the hardware")
    engine_request = EngineRequest(settings.llm, tp, settings.options)
    with EngineProcess(settings.backend, engine_request, early_log) as engine:
        try:
            gpu = gpu_name(engine.device())
            failure = None
        except EngineFailure as error:
            gpu, failure = NO_HARDWARE, str(error)
        run = _Run(settings, settings.gpu or gpu, llm, tp, on_progress)
        run.log_path.parent.mkdir(parents=True, exist_ok=True)
        engine.move_log(run.log_path)
        if failure is None:
            failure = run.measure(engine)
        return run.finish(failure)


@dataclass
class _Run:
    """The measurement of one tensor-parallel degree into one folder."""

    settings: ProfileSettings
    gpu: str
    llm: str
    tp: int
    on_progress: OnProgress
    rows: list[Row] = field(default_factory=list)
    failed: dict[Scene, str] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.record_path = record_path(self.settings.out, self.gpu, self.llm, self.tp)
        self.points_path = self.record_path.with_name(f"tp{self.tp}.csv")
        self.log_path = self.record_path.with_name(f"tp{self.tp}.log")

    def measure(self, engine: EngineProcess) -> str | None:
        """Measure the points that are missing; return the reason when that fails."""
        # Kept until there is a plan: if the engine fails to start, the record must
        # still name the engine that measured the points.
        self.record = before = read_record(self.record_path)
        with PointFile(self.points_path) as points:
            self.rows = points.rows
            if points.rows and not self.settings.resume:
                raise InputError(
                    f"{points.path}: holds {len(points.rows)} points; add --resume "
                    "to continue with them, or delete it"
                )
            if before.get("status") == "complete":
                return None
            self.on_progress(self.tp, 0, 0, "starting the engine")
            try:
                facts = engine.load()
                plan = self._plan(facts, before)
                self._measure_scenes(engine, plan, points)
                self.record["all_reduce"] = self._all_reduce(engine, facts)
            except EngineFailure as error:
                return str(error)
        return None

    def finish(self, failure: str | None) -> Measured:
        """Complete the record and return the result of this degree."""
        skipped = self.record.get("skipped", []) + [
            {"what": str(scene), "reason": reason}
            for scene, reason in self.failed.items()
        ]
        advised = advice(failure) if failure else None
        self.record |= {
            "status": "failed" if failure else "complete",
            "points": len(self.rows),
            "noisy_points": sum(row.noisy for row in self.rows),
            "finished": _now(),
        }
        if failure:
            self.record = self._identity() | self.record
            self.record["failure"] = {"reason": failure, "advice": advised}
        self.record["skipped"] = skipped
        write_record(self.record_path, self.record)
        return Measured(
            gpu=self.gpu,
            llm=self.llm,
            tp=self.tp,
            points_path=self.points_path,
            record_path=self.record_path,
            log_path=self.log_path,
            point_count=len(self.rows),
            noisy_count=self.record["noisy_points"],
            failure=failure,
            advice=advised,
            skipped=tuple((skip["what"], skip["reason"]) for skip in skipped),
        )

    def _identity(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "gpu": self.gpu,
            "llm": self.llm,
            "tp": self.tp,
            "backend": self.settings.backend,
            "capplan": own_version(),
        }

    def _plan(self, facts: EngineFacts, before: dict[str, Any]) -> ProfilePlan:
        how = density(self.settings.density)
        if "engine" in before:
            check_same_engine(self.record_path, before["engine"], facts.as_document())
            # Free memory differs from start to start; the plan must not.
            facts = facts_from_document(before["engine"])
            how = density(before["density"])
        plan = plan_profile(facts, how)
        self.record = self._identity() | {
            "status": "measuring",
            "started": before.get("started", _now()),
            "density": before.get("density", self.settings.density),
            "engine": facts.as_document(),
            "skipped": [skip._asdict() for skip in plan.skipped],
        }
        write_record(self.record_path, self.record)
        return plan

    def _measure_scenes(
        self, engine: EngineProcess, plan: ProfilePlan, points: PointFile
    ) -> None:
        how = density(self.record["density"])
        budget = plan.budget_tokens
        shuffle = random.Random(_SEED)
        scenes = shuffle.sample(plan.scenes, len(plan.scenes))
        work = {scene: how.rounds * scene_work(scene, budget) for scene in scenes}
        total = sum(work.values())
        owners = plan.owners()
        missing = {owners[point] for point in owners.keys() - points.points}
        pending = [scene for scene in scenes if scene in missing]
        done = total - sum(work[scene] for scene in pending)
        for start in range(0, len(pending), GROUP_SCENES):
            group = pending[start : start + GROUP_SCENES]
            target = done + sum(work[scene] for scene in group)
            turns = measure_in_turn(
                group, how.rounds, lambda scene: self._run(engine, scene), shuffle
            )
            for scene, rows in turns:
                if rows is None:
                    # Rounds added for noise do not count as progress.
                    done = min(target, done + work[scene] / how.rounds)
                    self.on_progress(self.tp, done, total, str(scene))
                else:
                    own = [row for row in rows if owners[row.point] == scene]
                    points.append(*(r for r in own if r.point not in points.points))
            done = target

    def _run(self, engine: EngineProcess, scene: Scene) -> list[Sample]:
        """Run a scene; one that the engine survives failing is left out."""
        if scene in self.failed:
            return []
        try:
            return engine.run(scene)
        except EngineFailure as error:
            if not engine.alive:
                raise
            self.failed[scene] = str(error)
            return []

    def _all_reduce(
        self, engine: EngineProcess, facts: EngineFacts
    ) -> list[dict[str, float]]:
        """Return the time of an all-reduce per batch size, and its share of decode."""
        if self.tp == 1:
            return []
        decode_s: dict[int, float] = {}
        for row in sorted(self.rows, key=lambda row: -row.point.context):
            if row.point.phase == "decode":
                decode_s[row.point.batch] = row.seconds
        measured = []
        for tokens in sorted({*decode_s, facts.max_num_batched_tokens}):
            seconds = engine.all_reduce_s(tokens)
            if seconds is None:
                return []
            entry = {"tokens": tokens, "seconds": seconds}
            if tokens in decode_s:
                # Attention and feed-forward of each layer end in an all-reduce.
                share = 2 * facts.layers * seconds / decode_s[tokens]
                entry["share_of_shortest_decode"] = round(share, 4)
            measured.append(entry)
        return measured


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def advice(reason: str) -> str:
    """Return a remedy for the engine's own reason.

    Examples
    --------
    >>> advice("ModuleNotFoundError: No module named 'vllm'")
    'install vLLM in this environment, or use --backend torch'
    """
    for _, row in read_rows(_ADVICE)[1]:
        if re.search(row["reason"], reason, re.IGNORECASE | re.DOTALL):
            return row["remedy"]
    return "read the log beside the profile"
