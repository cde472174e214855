"""capplan: offline capacity planner for LLM serving.

``plan``, ``simulate``, ``search``, ``demand``, ``capacity``, ``autoscale``,
``budget`` and ``compare`` take the settings of the commands under the same names;
:mod:`capplan.planning.settings.plan` lists them. ``trace`` may be a DataFrame.
``share_nodes`` is ``capplan fleet``.

A result prints as a paragraph and shows itself in a notebook. ``.to_pandas()`` is its
table, ``.plot()`` its charts, and ``.save("out")`` writes what ``--out`` does.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from capplan.planning.autoscale.result import Autoscaled
    from capplan.planning.backtest.result import Backtest
    from capplan.planning.budget.result import Budget
    from capplan.planning.compare.compare import Comparison
    from capplan.planning.evaluate.run import Run
    from capplan.planning.plan.demand import Demand
    from capplan.planning.plan.result import Plan
    from capplan.planning.shared_fleet.result import SharedFleet
    from capplan.planning.size.search import Search
    from capplan.planning.size.served import Capacity
    from capplan.planning.what_if.what_if import WhatIf

__all__ = [
    "autoscale",
    "backtest",
    "budget",
    "capacity",
    "compare",
    "demand",
    "plan",
    "search",
    "share_nodes",
    "simulate",
    "what_if",
]


def plan(**settings: Any) -> "Plan":
    """Return the fewest GPUs that serve a workload within its SLOs.

    Settings are those of ``capplan plan``: ``trace`` or ``workload``, ``rate``,
    ``llm``, ``gpu``, ``tp``, ``slo`` and so on; with ``out`` its files are written.
    """
    from capplan.planning.settings.plan import PlanSettings
    from capplan.report import to_files

    return to_files.plan(PlanSettings(**settings))[0]


def what_if(**settings: Any) -> "WhatIf":
    """Return a plan for each combination of settings that are varied.

    Settings are those of :func:`plan`, and ``vary``: ``{"rate": ["x1", "x2"]}``.
    """
    return _answered("what-if", settings)


def simulate(**settings: Any) -> "Run":
    """Return one given deployment, simulated and judged.

    Settings are those of :func:`plan` that apply, ``replicas``, ``stream``, and files
    to write: ``record_iterations``, ``per_request``, ``trace_events``.
    """
    return _answered("simulate", settings)


def search(**settings: Any) -> "Search":
    """Return the throughput per GPU of each GPU type and TP degree."""
    return _answered("search", settings)


def demand(**settings: Any) -> "Demand":
    """Return the replicas that several arrival rates need, and the line through them.

    Settings are those of :func:`plan` without ``rate``; ``rates`` to plan for, and
    rates ``at`` which to extrapolate.
    """
    return _answered("demand", settings)


def capacity(**settings: Any) -> "Capacity":
    """Return the highest rate and the most users that given fleets serve.

    Settings are those of :func:`plan` without ``rate``; one of ``replicas``,
    ``max_gpus`` and ``max_usd_per_month``; ``also_slo`` for other objectives.
    """
    return _answered("capacity", settings)


def autoscale(**settings: Any) -> "Autoscaled":
    """Return autoscalers compared with fixed fleets.

    Settings are those of :func:`plan` that apply; ``policies`` to compare, and what is
    lost: ``outage``, ``rolling_update``, ``spot``.
    """
    return _answered("autoscale", settings)


def compare(**settings: Any) -> "Comparison":
    """Return serving systems compared: price, and what each does on equal hardware.

    Settings are those of :func:`plan` but ``scheduler``; ``systems`` to compare,
    ``replicas`` for all, and ``rates`` of the curves.
    """
    return _answered("compare", settings)


def backtest(**settings: Any) -> "Backtest":
    """Return a fleet that runs, held against its simulation.

    Settings are those of ``capplan backtest``: ``metrics``, ``requests``, and what runs
    as for :func:`simulate`.
    """
    return _answered("backtest", settings)


def share_nodes(*plans: Any, **settings: Any) -> "SharedFleet":
    """Return the LLMs of several plans on shared nodes.

    ``plans`` are paths of ``plan.json``, or of folders with one; settings are those of
    ``capplan fleet``: ``trace``, ``availability``, ``repair``, ``failures``, ``shift``.
    """
    return _answered("fleet", {"plans": plans, **settings})


def budget(**settings: Any) -> "Budget":
    """Return nodes by hour and month, the commitments to buy, and what all costs.

    Settings are those of :func:`plan`; ``horizon_months``, ``growth``, ``commit``,
    ``spot_share``, ``owned``, ``grid`` and so on.
    """
    return _answered("budget", settings)


def _answered(name: str, given: dict[str, Any]) -> Any:
    from capplan.report.questions import QUESTIONS
    from capplan.report.to_files import answer

    return answer(name, QUESTIONS[name].model(**given))[0]
