"""``capplan verify``: check a plan.json independently of the planner."""

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
        Path,
        typer.Argument(metavar="plan.json", help="Plan that `capplan plan` wrote."),
    ],
    simulate: Annotated[
        bool,
        typer.Option(
            "--simulate/--no-simulate",
            help="Simulate N and N - 1 replicas again from the plan's settings.",
        ),
    ] = True,
) -> None:
    """Check the lower bound, the simulations and the digest of a plan.

    Exit code 0: verified; 1: refused, with the reasons; 2: wrong input.
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
        f"{plan}: verified: replicas {block['replica_count']}, lower bound "
        f"{block['bound']['replica_count']}, attainment "
        f"{block['simulated']['passing']:.4%} ({how})"
    )


def read_plan(path: Path) -> Mapping[str, Any]:
    """Return the JSON object of a plan file.

    Raises
    ------
    InputError
        When the file cannot be read or is not a JSON object.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise InputError(f"{path}: not JSON: {error}") from None
    if not isinstance(document, dict):
        raise InputError(f"{path}: expected a JSON object, a plan that capplan wrote")
    return document


def reproduction() -> Reproduce | None:
    """Return the planner's function that simulates a plan again, if installed."""
    if find_spec(_REPRODUCTION) is None:
        return None
    reproduce: Reproduce = import_module(_REPRODUCTION).reproduce
    return reproduce
