"""A first scenario from three answers: which LLM, which traffic, within what."""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from capplan.errors import InputError
from capplan.llm.catalog import llm as find_llm
from capplan.planning.load.traffic import read_requests
from capplan.planning.settings.plan import PlanSettings
from capplan.settings import SettingError
from capplan.workload.arrivals import no_times
from capplan.workload.catalog import shipped_workload_names

LENGTHS = "sharegpt"
"""Shipped workload whose lengths stand in where only a rate is known."""


class Answers(NamedTuple):
    """Answers to the three questions."""

    llm: str
    traffic: str  # RATE, FILE, WORKLOAD, or one of the last two @RATE
    slo: str
    columns: tuple[str, ...] = ()  # NAME=COLUMN of a trace


def scenario_text(answers: Answers, path: Path) -> str:
    """Return the YAML of a scenario that is written to a path, with comments."""
    given = _traffic(answers.traffic)
    find_llm(answers.llm)
    asked = {"llm": answers.llm, "slo": answers.slo, "columns": answers.columns}
    try:
        settings = PlanSettings(**asked | given)
    except SettingError as error:
        raise InputError(str(error).replace("trace:", "traffic:")) from None
    if settings.objective() is None:
        raise InputError("no SLO; expected limits such as ttft=1s,tpot=30ms")
    requests = read_requests(settings)
    if settings.rate is None and requests.arrival_s is None:
        raise InputError(f"{no_times(requests)}; here FILE@RATE, as in own.csv@20")
    names = {k: str(v) for k, v in given.items() if k in ("trace", "workload")}
    if "trace" in names:
        names["trace"] = os.path.relpath(names["trace"], path.parent)
    lines = [f"{name}: {json.dumps(text)}" for name, text in names.items()]
    if settings.columns:
        lines.append(f"columns: {json.dumps(settings.columns)}")
    template = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    return template.format(
        path=path,
        traffic="\n".join([*lines, _rate_line(given.get("rate"))]),
        llm=json.dumps(answers.llm),
        slo="{" + ", ".join(_limits(answers.slo)) + "}"
        if ":" not in answers.slo
        else json.dumps(answers.slo),
        requests=f"{len(requests):,} requests, on average "
        f"{requests.prompt_tokens.mean():,.0f} prompt and "
        f"{requests.output_tokens.mean():,.0f} output tokens",
    )


def _limits(slo: str) -> list[str]:
    """Return the limits as YAML has them."""
    return [part.strip().replace("=", ": ", 1) for part in slo.split(",")]


def _rate_line(rate: float | None) -> str:
    if rate is None:
        return "# rate: 20              # requests per second; rescales the trace's own"
    return f"rate: {rate:g}                # requests per second"


def _traffic(text: str) -> dict[str, Any]:
    """Return the settings of an answer about the traffic."""
    text = text.strip()
    if _number(text) is not None:
        return {"workload": LENGTHS, "rate": _number(text)}
    given: dict[str, Any] = {}
    name, at, rate = text.rpartition("@")
    if at and _number(rate) is not None and not Path(text).exists():
        text, given = name, {"rate": _number(rate)}
    if text in shipped_workload_names() and not Path(text).exists():
        return {"workload": text, **given}
    if not Path(text).is_file():
        raise InputError(
            f"traffic is {text!r}; expected requests a second such as 20, a trace "
            f"file, or one of {', '.join(shipped_workload_names())}; each with @RATE "
            "where it has no times, as in sharegpt@20"
        )
    return {"trace": text, **given}


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
