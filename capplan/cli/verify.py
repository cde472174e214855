"""``capplan verify``: check a plan, budget or autoscale.json by making it again."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from capplan.cli.answer import show
from capplan.cli.export import FILES
from capplan.cli.notices import announce_compilation
from capplan.cli.options import with_settings
from capplan.cli.outputs import say
from capplan.cli.parameters import flag, operand
from capplan.planning.settings.plan import PlanSettings
from capplan.report.provenance import VERIFIED
from capplan.report.questions import named

REFUSED = 1


_NAMES = tuple(f"{name}.json" for name in VERIFIED)


@with_settings(PlanSettings, only=FILES)
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
    from capplan.report.pages.checked import verified_page
    from capplan.report.received.plan_document import kind_of, plan_path, read_plan

    plan = plan_path(plan, _NAMES)
    given = {name: value for name, value in flags.items() if value is not None}
    kind = kind_of(plan)
    verifier, *verdicts = _VERIFIERS.get(kind, _VERIFIERS["plan"])
    document = {} if kind in VERIFIED[1:] else read_plan(plan)
    if simulate:
        announce_compilation()
    verify = named(verifier)
    reasons = verify(plan, simulate=simulate, given=given, trust=trust)
    # A refused one may lack anything.
    claim = "" if reasons or not document else _claim(document)
    for reason in reasons:
        say(f"{plan}: refused: {reason}")
    verdict = verdicts[0 if simulate else 1].format(claim=claim)
    page = verified_page(plan, reasons, simulated=simulate, claim=claim)
    show(page, told=lambda: [] if reasons else [f"{plan}: {verdict}"])
    return REFUSED if reasons else 0


_VERIFIERS = {
    "plan": (
        "capplan.report.received.verify:verify",
        "verified: {claim} (every figure planned again)",
        "not verified: it claims {claim}. Checked: its digest, and that the "
        "certificate and the best candidate agree. Not checked: the requests, the "
        "lower bound, the simulations and all other figures; anyone can write such a "
        "file, --simulate plans again",
    ),
    "autoscale": (
        "capplan.report.received.verify_autoscale:verify_autoscaled",
        "verified: every figure simulated again",
        "not verified: its digest matches and its figures agree with one another; "
        "anyone can write such a file, --simulate runs it again",
    ),
    "budget": (
        "capplan.report.received.verify_budget:verify_budget",
        "verified: its bill is that of its rows, and every figure budgeted again",
        "not verified: its bill is that of its rows; anyone can write such a file, "
        "--simulate budgets again",
    ),
}
"""By kind of file: what checks it, what is said then with and without simulating."""


def _claim(document: Mapping[str, Any]) -> str:
    block = document["certificate"]
    if block is None:
        return "infeasible"
    pools = block.get("pools", [block])
    counts = " + ".join(str(pool["replica_count"]) for pool in pools)
    bounds = " + ".join(str(pool["bound"]["replica_count"]) for pool in pools)
    share = block["simulated"]["passing"]
    return f"replicas {counts}, at least {bounds}, {100 * share:.6g} % in time"
