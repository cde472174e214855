"""Check a plan.json: its certificate, and every figure by planning again."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from capplan.bounds.certificate import check_document
from capplan.bounds.pools_certificate import POOLS_SCHEMA
from capplan.errors import InputError
from capplan.planning.plan import plan
from capplan.planning.pool_proof import reproduce_pools
from capplan.planning.proof import reproduce
from capplan.planning.settings import PlanSettings
from capplan.report.pages.plan import plan_values
from capplan.report.plan_document import read_plan, settings_now
from capplan.report.render.json_text import json_text
from capplan.simulator.schedulers.own_file import (
    file_of,
    named_by_content,
    names_content,
)

_MOST_REASONS = 10
_DIGEST = "document_digest"
_LATER: tuple[str, ...] = ("traffic", "lengths", "throughput", "purchase")
_LATER += ("class_cost_shares", "busiest_share_of_mean")
_LATER += ("layout", "gpus_per_replica", "gpu_count_range")
_LATER += ("data_parallel_size", "prefill_schedule_interval", "dp_balance")
_LATER += ("launch_line", "launch_notes", "nodes_per_replica", "is_gone_throughout")
_LATER += ("gpu_count_if_fewer_accepted", "gpu_count_if_more_accepted")
"""Keys that plans of an earlier release have not: nothing of theirs is claimed."""


def verify(
    path: Path, *, simulate: bool, trace: Path | None = None, trust: bool = False
) -> list[str]:
    """Return why a plan cannot be accepted; empty when it holds.

    The digest shows a change. The lower bound is checked from the requests by code
    that found none of it, and N and N - 1 replicas are simulated again. Then the plan
    is made again from its settings, and the whole document compared: a figure that
    was changed and sealed again differs. Without ``simulate``, only the document itself
    is checked, which takes a certificate. ``trace`` is the trace where it no longer
    lies where the plan names it; by default a file of that name beside the plan is
    taken too.
    A scheduler's file that the plan names is executed only with ``trust``.
    """
    document = read_plan(path)
    if not simulate:
        if document.get("certificate") is None:
            return [
                "the plan has no certificate: without planning again, which "
                "--no-simulate leaves out, nothing of it can be checked"
            ]
        return check_document(document)
    refuse_foreign_code(path, document, trust)
    settings, found = settings_now(document, path, trace)
    if document.get("interrupted"):
        return ["the plan was interrupted; plan again to have all of it verified"]
    reasons: list[str] = []
    if document.get("certificate") is not None:
        if reasons := check_document(document):
            return reasons
        rebuilt = {**document, "settings": settings}
        again_of = reproduce_pools if _is_apart(document) else reproduce
        reasons = check_document(document, lambda _: again_of(rebuilt))
    elif document.get("best") is not None:
        return ["the plan has no certificate"]
    has_load = document.get("replica_load") is not None
    planned = plan(PlanSettings(**settings), with_load=has_load)
    again = json_text(plan_values(planned))
    return reasons + changed(document, again, "planned", found)


def changed(
    document: Mapping[str, Any], again: str, made: str, found: Path | None
) -> list[str]:
    """Return where a document differs from the text of the one ``made`` again.

    That names the trace where it was ``found``, the document where it was then.
    """
    reasons: list[str] = []
    named = document["settings"].get("trace")
    if found is not None and named is not None:
        again = again.replace(json.dumps(str(found))[1:-1], json.dumps(named)[1:-1])
    for where, value, expected in _differences(document, json.loads(again), ""):
        reasons.append(f"{where} is {_short(value)}; {made} again: {_short(expected)}")
        if len(reasons) >= _MOST_REASONS:
            break
    return reasons


def _is_apart(document: dict[str, Any]) -> bool:
    """Return whether a plan's certificate is of prompts and decoding apart."""
    block = document["certificate"]
    return isinstance(block, dict) and block.get("schema") == POOLS_SCHEMA


def refuse_foreign_code(path: Path, document: dict[str, Any], trust: bool) -> None:
    """Refuse a plan whose scheduler is a Python file, unless that is trusted.

    With ``trust``, the plan must name the content of the file, which is compared
    before it is executed.
    """
    block = document.get("certificate")
    engine = block.get("engine") if isinstance(block, dict) else None
    for part in (document["settings"], engine):
        name = part.get("scheduler") if isinstance(part, dict) else None
        file = file_of(name) if isinstance(name, str) else ""
        if not file:
            continue
        if not trust:
            raise InputError(
                f"{path}: its scheduler is the Python file {file}, which is executed "
                "to plan again; read that file, then give --trust, or --no-simulate"
            )
        if not names_content(str(name)):
            raise InputError(
                f"{path}: does not name the content of its scheduler {file}; expected "
                "a plan as capplan wrote it"
            )
        named_by_content(str(name).partition(":")[0])


def _differences(
    value: Any, expected: Any, where: str
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the places at which two documents differ, floats to nine digits."""
    if isinstance(value, Mapping) and isinstance(expected, Mapping):
        for key in dict.fromkeys([*expected, *value]):
            if key != _DIGEST:
                place = f"{where}.{key}" if where else str(key)
                if key in value and key in expected:
                    yield from _differences(value[key], expected[key], place)
                elif key in value or not (key in _LATER or expected[key] in (None, [])):
                    # Nothing in a key that a later release added is no difference.
                    yield place, value.get(key, "absent"), expected.get(key, "absent")
    elif isinstance(value, list) and isinstance(expected, list):
        if len(value) != len(expected):
            yield f"length of {where}", len(value), len(expected)
        for index, pair in enumerate(zip(value, expected, strict=False)):
            yield from _differences(*pair, f"{where}[{index}]")
    elif isinstance(value, float) and isinstance(expected, float):
        if not math.isclose(value, expected, rel_tol=1e-9, abs_tol=1e-15):
            yield where, value, expected
    elif type(value) is not type(expected) or value != expected:
        yield where, value, expected


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
