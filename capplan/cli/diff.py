"""``capplan diff``: what changed between two plans, or from a plan to its bill."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from capplan.cli.answer import show
from capplan.cli.outputs import say
from capplan.cli.parameters import flag, operand

if TYPE_CHECKING:
    from capplan.report.received.plan_diff import Rise

ROSE = 4
_PLAN = "plan.json, or a folder with one."


def diff_command(
    old: Annotated[Path, operand("OLD", _PLAN)],
    new: Annotated[Path | None, operand("NEW", _PLAN)] = None,
    actual: Annotated[
        Path | None,
        flag(
            "FILE",
            "In place of NEW the bill that came: charges as FOCUS has them, which "
            "clouds export (CSV).",
        ),
    ] = None,
    fail_above: Annotated[
        str | None,
        flag(
            "RISE",
            "Exit with 4 where the monthly cost rises by more, such as 10% or $5000, "
            "or only one of the plans has a cost.",
        ),
    ] = None,
) -> int:
    """Compare two plans, or a plan with its bill: what the cost moved by, and why.

    Markdown (--format md) fits a comment on GitHub. Exit code 0: compared; 2: wrong
    input; 4: the cost rises above --fail-above.
    """
    from capplan.errors import InputError
    from capplan.report.pages.diff import diff_page
    from capplan.report.received.plan_diff import parse_rise, plan_diff
    from capplan.report.received.plan_figures import plan_figures

    if (new is None) == (actual is None):
        raise InputError("expected a second plan, or the bill with --actual")
    most = None if fail_above is None else parse_rise(fail_above)
    if new is None:
        assert actual is not None
        return _with_bill(old, actual, most)
    diff = plan_diff(plan_figures(old), plan_figures(new))
    show(diff_page(diff))
    if most is None or not diff.exceeds(most):
        return 0
    return _rose("monthly cost", diff.share, most)


def _with_bill(plan: Path, actual: Path, most: "Rise | None") -> int:
    """Compare a plan with the bill that came."""
    from capplan.report.pages.invoice import invoice_page
    from capplan.report.received.invoice import invoice

    found = invoice(plan, actual)
    show(invoice_page(found))
    planned = found.planned_cents
    if most is None or not most.is_passed(found.billed_cents, planned):
        return 0
    share = found.effects["total"] / planned if planned else None
    return _rose("bill", share, most)


def _rose(what: str, share: float | None, most: "Rise") -> int:
    rise = "cannot be told" if share is None else f"is {100 * share:.1f} %"
    limit = f"more than --fail-above {most}"
    say(f"capplan: the rise of the {what} {rise}: {limit}")
    return ROSE
