"""``capplan verify``: check a plan.json or autoscale.json by making it again."""

from pathlib import Path
from typing import Annotated

import typer

from capplan.cli.notices import announce_compilation

REFUSED = 1


def verify_command(
    plan: Annotated[
        Path,
        typer.Argument(
            metavar="plan.json",
            help="Plan that `capplan plan` wrote, or autoscale.json.",
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
            help="Plan again and compare every figure (default: on); without, only "
            "whether the file is as it was sealed and agrees with itself.",
        ),
    ] = True,
) -> None:
    """Check the lower bound, the simulations and every figure of a plan.

    Exit code 0: verified; 1: refused, with the reasons; 2: wrong input.
    """
    from capplan.report.verify import read_plan, verify
    from capplan.report.verify_autoscale import is_autoscaled

    if is_autoscaled(plan):
        _verify_autoscaled(plan, trace, trust=trust, simulate=simulate)
        return
    document = read_plan(plan)
    if simulate:
        announce_compilation()
    _refuse(plan, verify(plan, simulate=simulate, trace=trace, trust=trust))
    block = document["certificate"]
    if block is None:
        typer.echo(f"{plan}: verified: infeasible (every figure planned again)")
        return
    pools = block.get("pools", [block])
    counts = " + ".join(str(pool["replica_count"]) for pool in pools)
    bounds = " + ".join(str(pool["bound"]["replica_count"]) for pool in pools)
    claim = (
        f"replicas {counts}, lower bound {bounds}, attainment "
        f"{block['simulated']['passing']:.4%}"
    )
    if simulate:
        typer.echo(f"{plan}: verified: {claim} (every figure planned again)")
        return
    typer.echo(
        f"{plan}: not verified: it claims {claim}. Checked: its digest, and that the "
        "certificate and the best candidate agree. Not checked: the requests, the "
        "lower bound, the simulations and all other figures; anyone can write such a "
        "file, --simulate plans again"
    )


def _refuse(path: Path, reasons: list[str]) -> None:
    """Say why a file is refused, and exit; go on where there is no reason."""
    for reason in reasons:
        typer.echo(f"{path}: refused: {reason}", err=True)
    if reasons:
        raise typer.Exit(REFUSED)


def _verify_autoscaled(
    path: Path, trace: Path | None, *, trust: bool, simulate: bool
) -> None:
    from capplan.report.verify_autoscale import verify_autoscaled

    if simulate:
        announce_compilation()
    reasons = verify_autoscaled(path, simulate=simulate, trace=trace, trust=trust)
    _refuse(path, reasons)
    if simulate:
        typer.echo(f"{path}: verified: every figure simulated again")
        return
    typer.echo(
        f"{path}: not verified: its digest matches and its figures agree with one "
        "another; anyone can write such a file, --simulate runs it again"
    )
