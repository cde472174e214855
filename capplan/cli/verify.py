"""``capplan verify``: check a plan.json without trusting the planner."""

import json
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from capplan.bounds.certificate import Reproduce, check_document
from capplan.errors import InputError

REFUSED = 1
_REPRODUCTION = "capplan.planning.proof"


def verify_command(
    plan: Annotated[
        Path, typer.Argument(metavar="plan.json", help="A plan that capplan wrote.")
    ],
    simulate: Annotated[
        bool,
        typer.Option(
            "--simulate/--no-simulate",
            help="Rebuild the inputs and simulate N and N - 1 replicas again.",
        ),
    ] = True,
) -> None:
    """Check a plan's bound, its simulations and that nothing in it was changed.

    Exit code 0 when everything holds, 1 with the reasons when something does not.
    """
    document = read_plan(plan)
    reproduce = reproduction() if simulate else None
    reasons = check_document(document, reproduce)
    for reason in reasons:
        typer.echo(f"{plan}: refused: {reason}", err=True)
    if reasons:
        raise typer.Exit(REFUSED)
    block = document["certificate"]
    how = "simulated again" if reproduce else "not simulated again"
    typer.echo(
        f"{plan}: holds: {block['replica_count']} replicas attain "
        f"{block['simulated']['passing']:.4%}, no scheduler does with fewer than "
        f"{block['bound']['replica_count']} ({how})"
    )


def read_plan(path: Path) -> Mapping[str, Any]:
    """Return a plan's document.

    Raises
    ------
    InputError
        When the file cannot be read or is not a JSON object.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise InputError(f"{path}: {problem.strerror or problem}") from None
    except ValueError as problem:
        raise InputError(f"{path}: not JSON: {problem}") from None
    if not isinstance(document, dict):
        raise InputError(f"{path}: expected a JSON object, a plan that capplan wrote")
    return document


def reproduction() -> Reproduce | None:
    """Return the planner's way to run a plan again, where there is one."""
    if find_spec(_REPRODUCTION) is None:
        return None
    found: Reproduce = import_module(_REPRODUCTION).reproduce
    return found
