"""``capplan verify``: check a plan, budget or autoscale.json by making it again."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from capplan.cli.answer import show
from capplan.cli.notices import announce_compilation
from capplan.cli.options import with_settings
from capplan.cli.outputs import say
from capplan.cli.parameters import flag, operand
from capplan.planning.settings.plan import PlanSettings
from capplan.report.provenance import VERIFIED
from capplan.setting_values import file_settings

REFUSED = 1


_NAMES = tuple(f"{name}.json" for name in VERIFIED)
_FILES = {*file_settings(PlanSettings)} - {"out", "scheduler"}
"""Settings whose files the user may name in place of those that a plan names."""


@with_settings(PlanSettings, only=_FILES)
def verify_command(
    plan: Annotated[
        Path,
        operand(
            "plan.json",
            "Plan that `capplan plan` wrote, or autoscale.json or budget.json, or "
            "a folder with one.",
        ),
    ],
    trust: Annotated[
        bool,
        flag(
            "",
            "Execute the Python file that the plan names as its scheduler, if its "
            "content is the plan's.",
            "--trust",
        ),
    ] = False,
    simulate: Annotated[
        bool,
        flag(
            "",
            "Plan again and compare every figure (default: on); without, only "
            "whether the file is as it was sealed and agrees with itself.",
            "--simulate/--no-simulate",
        ),
    ] = True,
    **flags: Any,
) -> int:
    """Check the lower bound, the simulations and every figure of a plan.

    Of the files that it names only a trace or profiles that lie beside it, with the
    SHA-256 that it states, are opened; flags name others in place of these.
    Exit code 0: verified; 1: refused, with the reasons; 2: wrong input.
    """
    from capplan.report.received.plan_document import kind_of, plan_path, read_plan
    from capplan.report.received.verify import verify

    plan = plan_path(plan, _NAMES)
    given = {name: value for name, value in flags.items() if value is not None}
    kind = kind_of(plan)
    if kind in _OTHERS:
        return _verify_other(plan, kind, given, trust=trust, simulate=simulate)
    document = read_plan(plan)
    if simulate:
        announce_compilation()
    reasons = verify(plan, simulate=simulate, given=given, trust=trust)
    claim = "" if reasons else _claim(document)  # a refused one may lack anything
    verdict = (
        f"verified: {claim} (every figure planned again)"
        if simulate
        else f"not verified: it claims {claim}. Checked: its digest, and that the "
        "certificate and the best candidate agree. Not checked: the requests, the "
        "lower bound, the simulations and all other figures; anyone can write such a "
        "file, --simulate plans again"
    )
    return _tell(plan, reasons, verdict, claim, simulate=simulate)


def _claim(document: Mapping[str, Any]) -> str:
    """Return what a plan claims."""
    block = document["certificate"]
    if block is None:
        return "infeasible"
    pools = block.get("pools", [block])
    counts = " + ".join(str(pool["replica_count"]) for pool in pools)
    bounds = " + ".join(str(pool["bound"]["replica_count"]) for pool in pools)
    share = block["simulated"]["passing"]
    return f"replicas {counts}, at least {bounds}, {100 * share:.6g} % in time"


def _tell(
    path: Path, reasons: list[str], verdict: str, claim: str = "", *, simulate: bool
) -> int:
    """Say whether a plan is verified, or why it is refused; return the exit code."""
    from capplan.report.pages.checked import verified_page

    for reason in reasons:
        say(f"{path}: refused: {reason}")
    page = verified_page(path, reasons, simulated=simulate, claim=claim)
    show(page, told=lambda: [] if reasons else [f"{path}: {verdict}"])
    return REFUSED if reasons else 0


_OTHERS = {
    "autoscale": (
        "verified: every figure simulated again",
        "not verified: its digest matches and its figures agree with one another; "
        "anyone can write such a file, --simulate runs it again",
    ),
    "budget": (
        "verified: its bill is that of its rows, and every figure budgeted again",
        "not verified: its bill is that of its rows; anyone can write such a file, "
        "--simulate budgets again",
    ),
}
"""What is said of other files: with and without simulating."""


def _verify_other(
    path: Path, kind: str, given: dict[str, str], *, trust: bool, simulate: bool
) -> int:
    if kind == "budget":
        from capplan.report.received.verify_budget import verify_budget as verify
    else:
        from capplan.report.received.verify_autoscale import verify_autoscaled as verify

    if simulate:
        announce_compilation()
    reasons = verify(path, simulate=simulate, given=given, trust=trust)
    verdict = _OTHERS[kind][0 if simulate else 1]
    return _tell(path, reasons, verdict, simulate=simulate)
