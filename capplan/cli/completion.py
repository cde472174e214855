"""Shell completion: the commands, their flags, and the names that flags take."""

from collections.abc import Callable

KIND_OF = {
    "llm": "llms",
    "gpu": "gpus",
    "nodes": "nodes",
    "provider": "providers",
    "kind": "ways-to-pay",
    "workload": "workloads",
    "reader": "formats",
    "arrivals": "arrivals",
    "predictor": "predictors",
    "engine": "engines",
    "scheduler": "schedulers",
    "router": "routers",
    "decode_router": "routers",
    "dispatcher": "dispatchers",
    "rebalancer": "rebalancers",
    "hand_off": "hand-offs",
    "policies": "autoscalers",
    "autoscaler": "autoscalers",
    "systems": "systems",
}
"""Kind of names that a setting takes, as ``capplan list`` has them."""


def completer(kind: str) -> Callable[[str], list[str]]:
    """Return a function from what is typed to the names that it may become.

    Of a list such as ``H100-SXM,A1`` the last name is completed.
    """

    def complete(incomplete: str) -> list[str]:
        # Imported here: a completion waits for it, a command does not.
        from capplan.report.pages.kinds import names_of

        before, comma, begun = incomplete.rpartition(",")
        names = [n for n in names_of(kind) if n.startswith(begun)]
        return [f"{before}{comma}{name}" for name in names]

    return complete


def complete_kind(incomplete: str) -> list[str]:
    """Return the kinds of names that what is typed may become."""
    from capplan.report.pages.kinds import KINDS

    return [kind for kind in KINDS if kind.startswith(incomplete)]
