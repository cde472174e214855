"""What a plan says of speculative decoding."""

from collections.abc import Sequence

from capplan.deployment.speculation import ACCEPTANCE_ERROR
from capplan.planning.plan.speculation_worth import DraftsTried, DraftsWorth
from capplan.report.columns import format_fine_usd, plural


def worth(found: DraftsWorth) -> str:
    """Return up to which load drafting pays, and what it takes at the plan's."""
    star = "*" if found.acceptance_how == "assumed" else ""
    tokens = f"{found.tokens_per_iteration:.3g}{star} tokens an iteration"
    text = (
        f"{found.draft_method}, {found.drafts} a step: {tokens} "
        f"({found.acceptance_source})"
    )
    if found.always_pays:
        text += "; pays at every batch that fits a replica"
    elif found.pays_up_to_batch == 0:
        text += "; never pays"
    else:
        text += (
            f"; pays up to {found.pays_up_to_batch} decoding requests on a replica "
            f"({found.pays_up_to_rate_per_s:.3g} requests/s)"
        )
    text += (
        f"; at the planned batch of {found.planned_batch} it pays from "
        f"{found.needed_tokens:.3g} tokens an iteration on"
    )
    counts = (found.gpu_count_if_fewer_accepted, found.gpu_count_if_more_accepted)
    if counts == (None, None):  # not looked at
        return text
    for what, count in zip(("fewer", "more"), counts, strict=True):
        needs = "no count holds" if count is None else plural(count, "GPU")
        text += f"; {100 * ACCEPTANCE_ERROR:.0f} % {what} accepted: {needs}"
    return text


def tried(rows: Sequence[DraftsTried]) -> str:
    """Return what each number of drafted tokens would take."""
    texts = []
    for row in rows:
        gpus = "infeasible"
        if row.gpu_count is not None:
            gpus = plural(row.gpu_count, "GPU")
        price = "" if row.usd_per_h is None else f", {format_fine_usd(row.usd_per_h)}/h"
        texts.append(f"{row.drafts}: {gpus}{price}")
    return "; ".join(texts)
