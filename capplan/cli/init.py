"""``capplan init``: a commented scenario from three questions."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from capplan.cli.answer import note
from capplan.cli.completion import completer
from capplan.cli.parameters import flag, operand
from capplan.errors import InputError

QUESTIONS = {
    "llm": "Which LLM is served (capplan list llms names them)?",
    "traffic": "Which traffic: requests a second such as 20, or a trace file?",
    "slo": "Within which limits?",
}
_OFFERED = {"llm": "Llama-3.1-8B", "traffic": "20", "slo": "ttft=1s,tpot=30ms"}


def init_command(
    path: Annotated[
        Path,
        operand(
            "SCENARIO.yaml",
            "File to write; one that exists is kept. (default capplan.yaml)",
        ),
    ] = Path("capplan.yaml"),
    llm: Annotated[
        str | None,
        flag("NAME|FILE", QUESTIONS["llm"], autocompletion=completer("llms")),
    ] = None,
    traffic: Annotated[
        str | None,
        flag(
            "RATE|FILE|NAME@RATE",
            "Requests a second, a trace file, or a shipped workload.",
        ),
    ] = None,
    slo: Annotated[
        str | None, flag("LIMITS", "Limits such as ttft=1s,tpot=30ms.")
    ] = None,
    columns: Annotated[
        list[str] | None,
        flag("NAME=COLUMN", "Columns of a trace that is a CSV: arrival_s=timestamp."),
    ] = None,
) -> int:
    """Write a commented scenario for `capplan plan` from three questions.

    What a flag answers is not asked.
    """
    if path.exists():
        raise InputError(f"{path}: exists and is kept; give another name")
    given = {"llm": llm, "traffic": traffic, "slo": slo}
    missing = [name for name, answer in given.items() if answer is None]
    if missing and not sys.stdin.isatty():
        flags = ", ".join(f"--{name}" for name in missing)
        raise InputError(f"nobody to ask: standard input is no terminal; give {flags}")
    for name in missing:
        given[name] = typer.prompt(QUESTIONS[name], default=_OFFERED[name], err=True)
    from capplan.files import write_texts
    from capplan.planning.plan.first_scenario import Answers, scenario_text

    llm, traffic, slo = map(str, given.values())
    answers = Answers(llm, traffic, slo, tuple(columns or ()))
    write_texts({path.name: scenario_text(answers, path)}, path.parent)
    note(f"written: {path}; capplan plan {path} --out out")
    return 0
