"""Commands that answer settings with a result: all that the name of each means."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from capplan.settings import Settings


@dataclass(frozen=True)
class Question:
    """A command, and the function of the same name in Python.

    Places are ``module:name``, imported when they are needed.
    """

    settings: str  # class, in capplan.planning
    compute: str  # function of the settings, in capplan
    result: str  # name of the class that it returns
    page: str  # function of the result, in capplan.report.pages
    text: str = ""  # help of the command; empty: it has a file of its own in cli/
    takes_plan: bool = False  # a plan.json in place of a scenario
    argument: str = ""  # setting that stands without a flag, in place of a scenario
    # how far it is, while it computes: function of the terminal; empty: not shown
    progress: str = "progress"
    may_stop: bool = False  # at Ctrl-C, with what is known so far
    # of settings, that it simulates
    schedulers: Callable[[Any], Iterable[str | None]] | None = lambda of: [of.scheduler]
    # whether what was asked cannot be: exit code 3
    fails: Callable[[Any], bool] = lambda result: False

    @property
    def model(self) -> "type[Settings]":
        """Class of the settings."""
        found: type[Settings] = named(f"capplan.planning.{self.settings}")
        return found

    def computed(self, *given: Any) -> Any:
        """Return the result."""
        return named(f"capplan.{self.compute}")(*given)


def named(place: str) -> Any:
    """Return what ``module:name`` names."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def _of_systems(settings: Any) -> Iterable[str]:
    systems = named("capplan.planning.compare.systems:SYSTEMS")
    for name in settings.systems or systems:
        yield systems[name].scheduler if name in systems else name


QUESTIONS = {
    "plan": Question(
        "settings.plan:PlanSettings",
        "planning.plan.plan:plan",
        "Plan",
        "plan:plan_page",
        """How many GPUs hold your limits, what they cost, and how sure that is.

        Of several LLMs (--llm A,B) a plan of each, side by side: with --out, a folder
        for each. Exit code 0: a feasible plan; 2: wrong input; 3: no configuration
        holds the SLO; 130: Ctrl-C, which answers with what is known so far.
        """,
        may_stop=True,
        fails=lambda plan: plan.best is None,
    ),
    "what-if": Question(
        "what_if.settings:WhatIfSettings",
        "planning.what_if.what_if:what_if",
        "WhatIf",
        "what_if:what_if_page",
        takes_plan=True,
        may_stop=True,
        fails=lambda found: not any(cell.best for cell in found.cells),
    ),
    "simulate": Question(
        "settings.plan:SimulateSettings",
        "planning.evaluate.run:simulate_deployment",
        "Run",
        "run:run_page",
        """Simulate one given deployment: latencies, requests in time, load over time.

        With an SLO, it simulates the same requests as `capplan plan`. Ctrl-C stops the
        simulation and reports the requests finished by then; exit code 130.
        """,
        progress="request_progress",
        may_stop=True,
    ),
    "search": Question(
        "settings.plan:SearchSettings",
        "planning.size.search:search",
        "Search",
        "search:search_page",
        """Compare TP degrees and GPUs by output tokens per second and GPU.

        Decode only, at the largest batch that the KV cache and the TPOT limit allow
        (Aladdin, Eq. 5 and 6); no simulation. Exit code 3 when no GPU can serve.
        """,
        progress="",
        schedulers=None,
        fails=lambda search: search.found.best is None,
    ),
    "demand": Question(
        "settings.plan:DemandSettings",
        "planning.plan.demand:demand",
        "Demand",
        "demand:demand_page",
        "Plan at several arrival rates and fit replicas = ⌈k5 · rate + c5⌉ (Aladdin).",
    ),
    "capacity": Question(
        "settings.plan:CapacitySettings",
        "planning.size.capacity:capacity",
        "Capacity",
        "capacity:capacity_page",
        """What the GPUs that you have carry: requests a second, and users.

        The inverse of `capplan plan`: of --replicas N, of the replicas that --max-gpus
        hold, or of those that --max-usd-per-month pays. Ctrl-C answers with the fleets
        that are done; exit code 130. Exit code 3: the first one serves nothing.
        """,
        may_stop=True,
        fails=lambda capacity: capacity.best.is_failure,
    ),
    "autoscale": Question(
        "autoscale.settings:AutoscaleSettings",
        "planning.autoscale.autoscale:autoscale",
        "Autoscaled",
        "autoscale:autoscale_page",
        """What autoscaling saves against a fixed fleet, and whether the peak holds.

        Each policy against the smallest fixed fleet that does as well, and against
        one that knows the arrivals to come; what an outage, an update or lost spot
        replicas do, and how many spares keep the SLO. Exit code 3: no fixed fleet
        holds the target; 130: Ctrl-C, which answers with what is known so far.
        """,
        may_stop=True,
        fails=lambda autoscaled: autoscaled.fixed is None,
    ),
    "budget": Question(
        "budget.settings:BudgetSettings",
        "planning.budget.budget:budget",
        "Budget",
        "budget:budget_page",
        """What GPUs cost over months of growth, and which commitments pay.

        Demand by the hour, of a trace or a typical week, grows month by month; replicas
        are simulated at some months' peaks. The ladder of commitments, spot, on demand
        and owned nodes are set side by side. Exit code 3: the quotas are too small.
        """,
        takes_plan=True,
        fails=lambda budget: bool(budget.infeasible_reason),
    ),
    "compare": Question(
        "compare.settings:CompareSettings",
        "planning.compare.compare:compare",
        "Comparison",
        "comparison:comparison_page",
        """Which serving system needs the fewest GPUs, and how all do on the same ones.

        A system is a scheduler with the router, the predictor and the engine settings
        that it was published with; what the scenario gives wins. Exit code 0: at least
        one system ran; 2: wrong input; 3: none holds the SLO; 130: Ctrl-C, which
        answers with what is known so far.
        """,
        may_stop=True,
        schedulers=_of_systems,
        fails=lambda of: not any(row.candidate or row.served for row in of.systems),
    ),
    "backtest": Question(
        "backtest.settings:BacktestSettings",
        "planning.backtest.backtest:backtest",
        "Backtest",
        "backtest:backtest_page",
        takes_plan=True,
        progress="",
        fails=lambda backtest: backtest.is_outside,
    ),
    "fleet": Question(
        "shared_fleet.settings:SharedFleetSettings",
        "report.received.planned_llms:share_planned",
        "SharedFleet",
        "shared_fleet:shared_fleet_page",
        """Put the LLMs of several plans on shared nodes, and share the bill.

        Nodes by the hour, packed so that each LLM of two replicas or more outlives any
        one node; spares for all; what each LLM uses, and what is idle.
        """,
        argument="plans",
        progress="",
        schedulers=None,
    ),
    "place": Question(
        "settings.place:PlaceSettings",
        "planning.plan.placing:place",
        "Placed",
        "placement:placement_page",
        """Place the requests of a moment: fewest replicas, who goes where, what binds.

        Exit code 0: placed; 2: wrong input; 3: no placement within --max-replicas.
        """,
        argument="snapshot",
        progress="",
        schedulers=None,
        fails=lambda placed: placed.placement.assignment is None,
    ),
}
"""By the name of the command."""


def question_of(result: Any) -> Question:
    """Return the question that a result answers."""
    return next(q for q in QUESTIONS.values() if q.result == type(result).__name__)
