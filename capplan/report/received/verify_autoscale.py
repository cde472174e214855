"""Check an autoscale.json: what it says of itself, and every figure simulated again."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from capplan.bounds.certificate import CHANGED, MALFORMED
from capplan.planning.autoscale.autoscale import autoscale
from capplan.planning.autoscale.settings import AutoscaleSettings
from capplan.report.pages.autoscale import DIGEST, SCHEMA, autoscale_values, digest_of
from capplan.report.received.allowed import received
from capplan.report.received.plan_document import read_made_by
from capplan.report.received.verify import changed
from capplan.report.render.json_text import json_text

_SLACK = 1 + 1e-9


def verify_autoscaled(path: Path, *, simulate: bool, **taken: Any) -> list[str]:
    """Return why a file of autoscalers cannot be accepted; empty when it holds.

    Its digest shows a change, and its figures must keep the laws of replica-hours. Then
    all is simulated again from its settings and compared, so that a figure that was
    changed and sealed again differs. The parameters are those of
    :func:`capplan.report.received.verify.verify`.
    """
    document = read_made_by("autoscale", path, SCHEMA)
    if document.get(DIGEST) != digest_of(document):
        return [CHANGED]
    try:
        reasons = _laws_broken(document)
    except MALFORMED as problem:
        return [f"it is malformed: {type(problem).__name__}: {problem}"]
    if reasons or not simulate:
        return reasons
    if document.get("interrupted"):
        return ["it was interrupted; run it again to have all of it verified"]
    settings, named = received(document, path, AutoscaleSettings, **taken)
    again = json_text(autoscale_values(autoscale(AutoscaleSettings(**settings))))
    return changed(document, again, "simulated", named, (DIGEST,))


def _laws_broken(document: Mapping[str, Any]) -> list[str]:
    """Return where figures contradict one another."""
    reasons = []
    fixed = document["fixed"]
    for row in [*([] if fixed is None else [fixed]), *document["policies"]]:
        names = ("gpu_hours_paid", "gpu_hours_ready", "gpu_hours_busy")
        paid, ready, busy = (row[name] for name in names)
        if paid * _SLACK < ready or ready * _SLACK < busy:
            reasons.append(
                f"{row['name']}: {paid:.6g} GPU-hours paid, {ready:.6g} ready and "
                f"{busy:.6g} busy; expected none to be more than the one before"
            )
        bound = row["lower_bound_gpu_hours"]
        if row["meets"] and bound is not None and paid * _SLACK < bound:
            reasons.append(
                f"{row['name']} holds the target with {paid:.6g} GPU-hours, below "
                f"the bound, {bound:.6g}"
            )
    return reasons
