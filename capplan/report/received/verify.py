"""Check a plan.json: its certificate, and every figure by planning again."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from capplan.bounds.certificate import check_document
from capplan.planning.plan.plan import plan
from capplan.planning.prove.proof import reproduce
from capplan.planning.settings.plan import PlanSettings
from capplan.report.pages.plan import plan_values
from capplan.report.received.allowed import received
from capplan.report.received.plan_document import read_plan
from capplan.report.render.json_text import json_text

_MOST_REASONS = 10
_SEAL = ("certificate", "document_digest")
"""Place of a plan's own digest, which is checked by itself: that of the plan made again
is of a text that names files where they lie now."""


def verify(path: Path, *, simulate: bool, **taken: Any) -> list[str]:
    """Return why a plan cannot be accepted; empty when it holds.

    The digest shows a change. The lower bound is checked from the requests by code
    that found none of it, and N and N - 1 replicas are simulated again. Then the plan
    is made again from its settings, and the whole document compared: a figure that
    was changed and sealed again differs. Without ``simulate``, only the document itself
    is checked, which takes a certificate. ``taken`` are ``given`` and ``trust``
    of :func:`capplan.report.received.allowed.received`.
    """
    document = read_plan(path)
    if not simulate:
        if document.get("certificate") is None:
            return [
                "the plan has no certificate: without planning again, which "
                "--no-simulate leaves out, nothing of it can be checked"
            ]
        return check_document(document)
    settings, named = received(document, path, PlanSettings, **taken)
    if document.get("interrupted"):
        return ["the plan was interrupted; plan again to have all of it verified"]
    reasons: list[str] = []
    if document.get("certificate") is not None:
        if reasons := check_document(document):
            return reasons
        rebuilt = {**document, "settings": settings}
        reasons = check_document(document, lambda _: reproduce(rebuilt))
    elif document.get("best") is not None:
        return ["the plan has no certificate"]
    has_load = document.get("replica_load") is not None
    planned = plan(PlanSettings(**settings), with_load=has_load)
    again = json_text(plan_values(planned))
    return reasons + changed(document, again, "planned", named, _SEAL)


def changed(
    document: Mapping[str, Any],
    again: str,
    made: str,
    named: Mapping[str, str],
    seal: tuple[str, ...],
) -> list[str]:
    """Return where a document differs from the text of the one ``made`` again.

    That names files where they lie now; ``named`` has what the document names them.
    Every key of either is compared but the document's own digest, at ``seal``.
    """
    reasons: list[str] = []
    expected_document = _renamed(json.loads(again), named)
    for place, value, expected in _differences(document, expected_document, ()):
        if place == seal:
            continue
        keys = (f"[{key}]" if isinstance(key, int) else f".{key}" for key in place)
        where = "".join(keys).removeprefix(".")  # best.windows[0].rate_per_s
        if len(reasons) >= _MOST_REASONS:
            break
        if isinstance(value, list) and isinstance(expected, list):
            where, value, expected = f"length of {where}", len(value), len(expected)
        reasons.append(f"{where} is {_short(value)}; {made} again: {_short(expected)}")
    return reasons


def _renamed(value: Any, named: Mapping[str, str]) -> Any:
    """Return a value of JSON whose texts name files as ``named`` has it."""
    if isinstance(value, dict):
        return {key: _renamed(each, named) for key, each in value.items()}
    if isinstance(value, list):
        return [_renamed(each, named) for each in value]
    for now, then in named.items() if isinstance(value, str) else ():
        value = value.replace(now, then)
    return value


def _differences(
    value: Any, expected: Any, place: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], Any, Any]]:
    """Yield the places at which two documents differ, floats to nine digits."""
    if isinstance(value, Mapping) and isinstance(expected, Mapping):
        for key in dict.fromkeys([*expected, *value]):
            inner = (*place, key)
            if key in value and key in expected:
                yield from _differences(value[key], expected[key], inner)
            else:
                yield inner, value.get(key, "absent"), expected.get(key, "absent")
    elif isinstance(value, list) and isinstance(expected, list):
        if len(value) != len(expected):
            yield place, value, expected
        for index, pair in enumerate(zip(value, expected, strict=False)):
            yield from _differences(*pair, (*place, index))
    elif isinstance(value, float) and isinstance(expected, float):
        if not math.isclose(value, expected, rel_tol=1e-9, abs_tol=1e-15):
            yield place, value, expected
    elif type(value) is not type(expected) or value != expected:
        yield place, value, expected


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
