"""``capplan ci``: what a pull request does to the bill, as a check and a comment."""

import os
import shlex
import shutil
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from capplan.cli.answer import note, show
from capplan.cli.diff import ROSE
from capplan.cli.options import with_settings
from capplan.cli.outputs import say
from capplan.cli.parameters import operand
from capplan.cli.scenario import settings_from
from capplan.errors import InputError
from capplan.setting_values import PathText
from capplan.settings import Settings, common

if TYPE_CHECKING:
    from capplan.cli.both_sides import Planner, Tree
    from capplan.report.received.scenario_change import Changes, ScenarioChange

_told = partial(common, panel="")


class CiSettings(Settings):
    """Settings of a check; what the shell says as text is parsed by the command."""

    base: str | None = _told(
        None, metavar="COMMIT", description="Compare with it (default: only the plan)."
    )
    fail_above: str | None = _told(
        None,
        metavar="RISE",
        description="Fail where all scenarios together cost more by 10%, or by $5000 a "
        "month.",
    )
    fail_if: str = _told(
        "misses",
        metavar="WHAT,...",
        description="Also fail on: misses (the peak does not hold), estimated (no load "
        "test backs the count), none.",
    )
    comment: Literal["changed", "always", "never"] = _told(
        "changed",
        metavar="WHEN",
        description="Comment on the pull request: changed (a plan differs, or a "
        "comment stands), always, never.",
    )
    comment_above: str = _told(
        "0%",
        metavar="CHANGE",
        description="Smallest change, up or down, worth a new comment: 1%, or $100.",
    )
    price_date: str | None = _told(
        None,
        metavar="DATE",
        description="Prices of this day, for both sides (default: the newest shipped).",
    )
    args: str = _told(
        "", metavar="FLAGS", description="More flags of capplan plan, for both sides."
    )
    cache: PathText | None = _told(
        None, metavar="DIR", description="Where plans are kept for the next run."
    )
    out: PathText = _told(
        "capplan-ci", metavar="DIR", description="Folder for comment.md and all plans."
    )
    trust: bool = _told(
        False,
        metavar="",
        description="Scenarios may name Python files as schedulers, which are run, "
        "clusters, and files outside the repository.",
        flags=("--trust",),
    )


_OF_JOB = {*CiSettings.model_fields} - {"cache", "out", "trust"}
"""Settings that variables of the job give too, under their names in capitals."""


@with_settings(CiSettings)
def ci_command(
    scenario: Annotated[
        list[str],
        operand(
            "SCENARIO.yaml...",
            "Scenarios, or patterns such as 'capacity/*.yaml'.",
            envvar="SCENARIO",
        ),
    ],
    **flags: Any,
) -> int:
    """Plan scenarios as they are and as a commit has them; comment on what changed.

    Both sides are planned by this version, with prices of one day. On GitHub it writes
    outputs, job summary and the comment; elsewhere comment.md. Variables in capitals,
    as FAIL_ABOVE, stand for flags. Exit code 0: passed; 2: wrong input; 4: the check
    fails.
    """
    of_job = {name: os.environ.get(name.upper()) or None for name in _OF_JOB}
    given = {name: value for name, value in flags.items() if value is not None}
    settings = settings_from(CiSettings, None, of_job | given)
    from capplan.cli.both_sides import Planner
    from capplan.files import check_folder
    from capplan.report.received.plan_diff import parse_rise
    from capplan.report.received.scenario_change import parse_fail_if
    from capplan.report.render.markdown import plain
    from capplan.today import current_day

    above, out = settings.fail_above, Path(settings.out)
    rise = None if above is None else parse_rise(above)
    least, if_ = parse_rise(settings.comment_above), parse_fail_if(settings.fail_if)
    words, today = _words(settings), current_day().isoformat()
    check_folder(out)
    check_folder(settings.cache or out)
    with tempfile.TemporaryDirectory(prefix="capplan-ci-") as temporary:
        plans = Path(settings.cache or Path(temporary, "plans")).absolute()
        planner = Planner(words, today, plans, settings.trust)
        base = settings.base or ""
        try:
            changes = _changes(planner, scenario, base, Path(temporary), out)
        except InputError as error:
            _append("GITHUB_STEP_SUMMARY", [f"capplan: {plain(str(error))}"])
            raise
    if rise is not None and not changes.is_compared:
        note(f"without --base nothing rises: --fail-above {rise} has no effect")
    failures = list(changes.failures(rise, if_))
    creates = settings.comment == "always" or changes.moves(least)
    _tell(changes, failures, out, None if settings.comment == "never" else creates)
    for failure in failures:
        say(f"capplan: the check fails: {failure}")
    return ROSE if failures else 0


def _changes(
    planner: "Planner", patterns: Sequence[str], base: str, temporary: Path, out: Path
) -> "Changes":
    """Plan each scenario of both sides; keep the files of its plans."""
    from capplan.cli.both_sides import scenarios_of, tree_of, working_tree
    from capplan.report.received.scenario_change import Changes

    planner.plans.mkdir(parents=True, exist_ok=True)
    now = working_tree(Path.cwd())
    before = tree_of(base, now, temporary) if base else None
    trees = [tree for tree in (now, before) if tree is not None]
    names = {name for tree in trees for name in scenarios_of(tree, patterns)}
    if not names:
        raise InputError(f"no scenario is {' or '.join(patterns)}")
    each = [_change(planner, name, now, before, out) for name in sorted(names)]
    return Changes(each, is_compared=before is not None)


def _tell(
    changes: "Changes", failures: Sequence[str], out: Path, creates: bool | None
) -> None:
    """Write comment.md, the comment where it may be, summary, outputs and answer."""
    from capplan.cli.merge_request import comment_here
    from capplan.files import write_texts
    from capplan.report.change_comment import changed_text, title
    from capplan.report.pages.ci import ci_page
    from capplan.report.pages.diff import MOST_CHARACTERS

    headline, short = title(changes), changed_text(changes, failures, MOST_CHARACTERS)
    written = write_texts({"comment.md": changed_text(changes, failures)}, out)
    left = "" if creates is None else comment_here(short, creates)
    if left:
        note(f"no comment: {left}")
    outputs = {**changes.outputs(headline), "folder": str(out)}
    _append("GITHUB_OUTPUT", [f"{k}={' '.join(v.split())}" for k, v in outputs.items()])
    _append("GITHUB_STEP_SUMMARY", [short, *[f"No comment: {left}."] * bool(left)])
    show(ci_page(changes, headline, failures), written)


def _words(settings: CiSettings) -> tuple[str, ...]:
    """Return the flags of both sides; no shell reads them."""
    try:
        words = shlex.split(settings.args)
    except ValueError as error:
        raise InputError(f"--args {settings.args!r}: {error}") from None
    day = settings.price_date
    return (*words, *(("--price-date", day) if day else ()))


def _change(
    planner: "Planner", name: str, now: "Tree", before: "Tree | None", out: Path
) -> "ScenarioChange":
    """Plan a scenario where it is there; keep the files of its plans."""
    from capplan.report.received.scenario_change import ScenarioChange, WrittenPlan

    shutil.rmtree(out / name, ignore_errors=True)  # of an earlier run

    def planned(tree: "Tree | None", *below: str) -> WrittenPlan | None:
        if tree is None or not (tree.folder / name).is_file():
            return None
        note(f"planning {name}{' as it was' * (tree is before)}")
        made = planner.plan(tree, name)
        shutil.copytree(made, Path(out, name, *below), dirs_exist_ok=True)
        return WrittenPlan.of(made)

    new, old, why_no_old = planned(now), None, ""
    try:
        old = planned(before, "before")
    except InputError as error:  # not the fault of the change
        why_no_old = str(error)
    return ScenarioChange(name, old, new, why_no_old)


def _append(variable: str, lines: Sequence[str]) -> None:
    """Append lines to the file that a variable of the job names."""
    if path := os.environ.get(variable):
        with open(path, "a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
