"""``capplan ci``: what a pull request does to the bill, as a check and a comment."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from capplan.cli.answer import note, show
from capplan.cli.diff import ROSE
from capplan.cli.outputs import say
from capplan.cli.parameters import flag, operand
from capplan.errors import InputError

if TYPE_CHECKING:
    from capplan.report.received.scenario_change import Changes


def _told(variable: str, metavar: str, text: str) -> Any:
    """Return a flag that a variable of the job gives too; an empty one does not."""
    return flag(metavar, text, envvar=variable, show_envvar=False)


def ci_command(
    scenario: Annotated[
        list[str],
        operand(
            "SCENARIO.yaml...",
            "Scenarios, or patterns such as 'capacity/*.yaml'.",
            envvar="SCENARIO",
        ),
    ],
    base: Annotated[
        str, _told("BASE", "COMMIT", "Compare with it (default: only the plan).")
    ] = "",
    fail_above: Annotated[
        str, _told("FAIL_ABOVE", "RISE", "Fail where all cost 10%, or $5000, more.")
    ] = "",
    fail_if: Annotated[
        Literal["misses", "estimated", "misses,estimated", "none"],
        _told(
            "FAIL_IF",
            "WHAT,...",
            "Also fail on: misses (the peak does not hold), estimated (no load test "
            "backs the count), both or none (default misses).",
        ),
    ] = "misses",
    comment: Annotated[
        Literal["changed", "always", "never"],
        _told(
            "COMMENT",
            "WHEN",
            "Comment on the pull request: changed (a plan differs, or a comment "
            "stands), always, never (default changed).",
        ),
    ] = "changed",
    comment_above: Annotated[
        str,
        _told("COMMENT_ABOVE", "CHANGE", "Least that is worth one: 1%, $100."),
    ] = "0%",
    price_date: Annotated[
        str, _told("PRICE_DATE", "DATE", "Prices of that day (default: the newest).")
    ] = "",
    args: Annotated[
        str, _told("ARGS", "FLAGS", "More flags of capplan plan, for both sides.")
    ] = "",
    cache: Annotated[
        Path | None, flag("DIR", "Where plans are kept for the next run.")
    ] = None,
    out: Annotated[
        Path, flag("DIR", "For comment.md and all plans (default capplan-ci).")
    ] = Path("capplan-ci"),
    trust: Annotated[
        bool, flag("", "Scenarios may name Python files, clusters and files elsewhere.")
    ] = False,
) -> int:
    """Plan scenarios as they are and as a commit has them; comment on what changed.

    Both sides are planned by this version, with prices of one day. On GitHub it writes
    outputs, job summary and the comment; elsewhere comment.md. Variables in capitals,
    as FAIL_ABOVE, stand for flags. Exit code 0: passed; 2: wrong input; 4: the check
    fails.
    """
    from capplan.cli.both_sides import both_sides
    from capplan.files import check_folder
    from capplan.report.received.plan_diff import parse_rise
    from capplan.report.render.markdown import plain

    rise = parse_rise(fail_above) if fail_above else None
    least = parse_rise(comment_above)
    try:
        words = shlex.split(args) + ["--price-date", price_date] * bool(price_date)
    except ValueError as error:
        raise InputError(f"--args {args!r}: {error}") from None
    check_folder(out)
    check_folder(cache or out)
    try:
        changes = both_sides(scenario, base, words, cache, out, trusts=trust)
    except InputError as error:
        _append("GITHUB_STEP_SUMMARY", f"capplan: {plain(str(error))}")
        raise
    if rise is not None and not base:
        note(f"without --base nothing rises: --fail-above {rise} has no effect")
    failures = list(changes.failures(rise, fail_if))
    creates = comment == "always" or changes.moves(least)
    _tell(changes, failures, out, None if comment == "never" else creates)
    for failure in failures:
        say(f"capplan: the check fails: {failure}")
    return ROSE if failures else 0


def _tell(
    changes: "Changes", failures: Sequence[str], out: Path, creates: bool | None
) -> None:
    """Write comment.md, the comment where it may be, outputs, summary and answer."""
    from capplan.cli.merge_request import comment_here
    from capplan.files import write_texts
    from capplan.report.change_comment import changed_text, title
    from capplan.report.pages.ci import ci_page
    from capplan.report.pages.diff import MOST_CHARACTERS

    headline, short = title(changes), changed_text(changes, failures, MOST_CHARACTERS)
    written = write_texts({"comment.md": changed_text(changes, failures)}, out)
    if left := "" if creates is None else comment_here(short, creates):
        note(f"no comment: {left}")
        short += f"\nNo comment: {left}.\n"
    for name, value in {**changes.outputs(headline), "folder": str(out)}.items():
        _append("GITHUB_OUTPUT", f"{name}={' '.join(value.split())}")
    _append("GITHUB_STEP_SUMMARY", short)
    show(ci_page(changes, headline, failures), written)


def _append(variable: str, text: str) -> None:
    """Append lines to the file that a variable of the job names."""
    if path := os.environ.get(variable):
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{text}\n")
