"""``capplan diff``: what changed between two plans, and what the change costs."""

from pathlib import Path
from typing import Annotated

from capplan.cli.answer import show
from capplan.cli.outputs import say
from capplan.cli.parameters import flag, operand

ROSE = 4
_PLAN = "plan.json, or a folder with one."


def diff_command(
    old: Annotated[Path, operand("OLD", _PLAN)],
    new: Annotated[Path, operand("NEW", _PLAN)],
    fail_above: Annotated[
        str | None,
        flag(
            "PERCENT",
            "Exit with 4 where the monthly cost rises by more, such as 10%, or "
            "only one of the plans has a cost.",
        ),
    ] = None,
) -> int:
    """Compare two plans: cost, price and volume effect, and the inputs that changed.

    Markdown (--format md) fits a comment on GitHub. Exit code 0: compared; 2: wrong
    input; 4: the cost rises above --fail-above.
    """
    from capplan.report.pages.diff import diff_page
    from capplan.report.received.plan_diff import parse_rise, plan_diff
    from capplan.report.received.plan_figures import plan_figures

    most = None if fail_above is None else parse_rise(fail_above)
    diff = plan_diff(plan_figures(old), plan_figures(new))
    show(diff_page(diff))
    if most is None or not diff.exceeds(most):
        return 0
    rise = "cannot be told" if diff.share is None else f"is {100 * diff.share:.1f} %"
    limit = f"more than --fail-above {100 * most:g}%"
    say(f"capplan: the rise of the monthly cost {rise}: {limit}")
    return ROSE
