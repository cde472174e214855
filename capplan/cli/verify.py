"""``capplan verify``: check a plan, budget or autoscale.json by making it again."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from capplan.cli.answer import show
from capplan.cli.notices import announce_compilation

REFUSED = 1


def verify_command(
    plan: Annotated[
        Path,
        typer.Argument(
            metavar="plan.json",
            help="Plan that `capplan plan` wrote, or autoscale.json or budget.json.",
        ),
    ],
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Trace of the plan (default: where it was, or beside plan.json).",
        ),
    ] = None,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust",
            help="Execute the Python file that the plan names as its scheduler, if its "
            "content is the plan's.",
        ),
    ] = False,
    simulate: Annotated[
        bool,
        typer.Option(
            "--simulate/--no-simulate",
            show_default=False,
            help="Plan again and compare every figure (default: on); without, only "
            "whether the file is as it was sealed and agrees with itself.",
        ),
    ] = True,
) -> None:
    """Check the lower bound, the simulations and every figure of a plan.

    Exit code 0: verified; 1: refused, with the reasons; 2: wrong input.
    """
    from capplan.report.plan_document import kind_of, read_plan
    from capplan.report.verify import verify

    kind = kind_of(plan)
    if kind in _OTHERS:
        _verify_other(plan, kind, trace, trust=trust, simulate=simulate)
        return
    document = read_plan(plan)
    if simulate:
        announce_compilation()
    reasons = verify(plan, simulate=simulate, trace=trace, trust=trust)
    claim = "" if reasons else _claim(document)  # a refused one may lack anything
    verdict = (
        f"verified: {claim} (every figure planned again)"
        if simulate
        else f"not verified: it claims {claim}. Checked: its digest, and that the "
        "certificate and the best candidate agree. Not checked: the requests, the "
        "lower bound, the simulations and all other figures; anyone can write such a "
        "file, --simulate plans again"
    )
    _tell(plan, reasons, verdict, claim, simulate=simulate)


def _claim(document: Mapping[str, Any]) -> str:
    """Return what a plan claims."""
    block = document["certificate"]
    if block is None:
        return "infeasible"
    pools = block.get("pools", [block])
    counts = " + ".join(str(pool["replica_count"]) for pool in pools)
    bounds = " + ".join(str(pool["bound"]["replica_count"]) for pool in pools)
    share = block["simulated"]["passing"]
    return f"replicas {counts}, lower bound {bounds}, attainment {share:.4%}"


def _tell(
    path: Path, reasons: list[str], verdict: str, claim: str = "", *, simulate: bool
) -> None:
    """Say whether a plan is verified; where it is refused, why, and exit."""
    from capplan.report.pages.checked import verified_page

    for reason in reasons:
        typer.echo(f"{path}: refused: {reason}", err=True)
    page = verified_page(path, reasons, simulated=simulate, claim=claim)
    show(page, told=lambda: [] if reasons else [f"{path}: {verdict}"])
    if reasons:
        raise typer.Exit(REFUSED)


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
    path: Path, kind: str, trace: Path | None, *, trust: bool, simulate: bool
) -> None:
    if kind == "budget":
        from capplan.report.verify_budget import verify_budget as verify
    else:
        from capplan.report.verify_autoscale import verify_autoscaled as verify

    if simulate:
        announce_compilation()
    reasons = verify(path, simulate=simulate, trace=trace, trust=trust)
    verdict = _OTHERS[kind][0 if simulate else 1]
    _tell(path, reasons, verdict, simulate=simulate)
