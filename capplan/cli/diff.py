"""``capplan diff``: what changed between two plans, and what the change costs."""

from pathlib import Path
from typing import Annotated

import typer

from capplan.errors import InputError, nearest

ROSE = 4
FORMATS = ("terminal", "md", "json")


def diff_command(
    old: Annotated[
        Path, typer.Argument(metavar="OLD", help="plan.json, or a folder with one.")
    ],
    new: Annotated[
        Path, typer.Argument(metavar="NEW", help="plan.json, or a folder with one.")
    ],
    format: Annotated[
        str,
        typer.Option(
            metavar="|".join(FORMATS),
            help="Output: for people, for a review (at most 65,536 characters), for "
            "programs.",
        ),
    ] = FORMATS[0],
    fail_above: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="Exit with 4 where the monthly cost rises by more, such as 10%, or "
            "only one of the plans has a cost.",
        ),
    ] = None,
) -> int:
    """Compare two plans: cost, price and volume effect, and the inputs that changed.

    Exit code 0: compared; 2: wrong input; 4: the cost rises above --fail-above.
    """
    from capplan.report.pages.diff import diff_markdown, diff_page, diff_values
    from capplan.report.plan_diff import parse_rise, plan_diff
    from capplan.report.plan_figures import plan_figures
    from capplan.report.render.json_text import json_text
    from capplan.report.render.terminal import print_result

    if format not in FORMATS:
        raise InputError(
            f"--format is {format!r}; expected one of {', '.join(FORMATS)}"
            f"{nearest(format, FORMATS)}"
        )
    most = None if fail_above is None else parse_rise(fail_above)
    diff = plan_diff(plan_figures(old), plan_figures(new))
    if format == "terminal":
        print_result(diff_page(diff), ())
    else:
        text = diff_markdown(diff) if format == "md" else json_text(diff_values(diff))
        typer.echo(text, nl=False)
    if most is None or not diff.exceeds(most):
        return 0
    rise = "cannot be told" if diff.share is None else f"is {diff.share:.1%}"
    limit = f"more than --fail-above {100 * most:g}%"
    typer.echo(f"capplan: the rise of the monthly cost {rise}: {limit}", err=True)
    return ROSE
