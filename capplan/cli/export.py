"""``capplan export``: the plan as a deployment."""

from pathlib import Path
from typing import Annotated, Any

from capplan.cli.answer import show
from capplan.cli.options import with_settings
from capplan.cli.outputs import say
from capplan.cli.parameters import flag, operand
from capplan.planning.settings.plan import PlanSettings
from capplan.setting_values import file_settings

FILES = {*file_settings(PlanSettings)} - {"out", "scheduler"}
"""Settings whose files the user may name in place of those that a plan names."""


@with_settings(PlanSettings, only=FILES)
def export_command(
    plan: Annotated[
        Path, operand("plan.json", "Plan that `capplan plan` wrote, or its folder.")
    ],
    to: Annotated[
        str,
        flag(
            "NAME",
            "Target: vllm, compose, k8s, lws, kserve, llm-d, dynamo, skypilot or ray; "
            "loadtest: the test of one replica, before there are more.",
        ),
    ],
    out: Annotated[
        Path | None, flag("DIR", "Folder for the files (default: printed).")
    ] = None,
    image: Annotated[str | None, flag("NAME:TAG", "Container image of vLLM.")] = None,
    checkpoint: Annotated[
        str | None,
        flag("ORG/NAME", "Hugging Face repository to serve (default: the plan's)."),
    ] = None,
    cold_start: Annotated[
        str | None,
        flag(
            "TIME",
            "From a replica's order to its first request (default: the plan's, "
            "which is assumed).",
        ),
    ] = None,
    **flags: Any,
) -> int:
    """Write the best candidate of a plan as files of a deployment, or of its load test.

    The load test takes the files that the plan names from beside it, or by flags.
    Exit code 0: written; 2: wrong input, or what the target cannot express at all;
    3: the plan is infeasible.
    """
    from capplan.cli.asked import INFEASIBLE
    from capplan.deployment.cold_start import parse_cold_start_s
    from capplan.errors import warn
    from capplan.files import check_folder, write_texts
    from capplan.report.exports import exported
    from capplan.report.pages.exported import exported_page

    if out is not None:
        check_folder(out)
    cold_start_s = None if cold_start is None else parse_cold_start_s(cold_start)
    given = {name: value for name, value in flags.items() if value is not None}
    found = exported(
        plan,
        to,
        image=image,
        checkpoint=checkpoint,
        cold_start_s=cold_start_s,
        given=given,
    )
    page = exported_page(plan, to, found)
    if isinstance(found, str):
        say(f"{plan}: {found}")
        show(page, told=lambda: ())
        return INFEASIBLE
    texts, export = found
    for line in export.lacks:
        warn(f"not in {to}: {line}")
    if out is None:
        first, *others = texts
        for name in others:
            warn(f"{name} is written with --out alone")
        manifest = texts[first].removesuffix("\n")  # for kubectl apply -f -
        show(page, told=lambda: [manifest])
        return 0
    written = write_texts(texts, out)
    files = f"written: {', '.join(map(str, written))}"
    show(page, written, told=lambda: [*export.told, files])
    return 0
