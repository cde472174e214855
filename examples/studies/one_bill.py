"""Ask every command for the bill of the same purchase, and compare.

    python examples/studies/one_bill.py --count 100

A purchase is a GPU type, a TP degree, a number of replicas, a way to pay and a
provider, drawn at random. One plan is simulated; a purchase changes its money alone,
which no simulation depends on: the plan's configuration, price and count are replaced,
and all that tells a bill is asked again. For each, the month of 730 h must be the same
in the plan, its table of bills, ways to pay, counts, plan.json as ``diff``,
``fleet`` and the certificate's check read it, plan.xlsx, plan.focus.csv, a what-if
cell, the fixed fleet of ``autoscale`` and the static month of ``budget``.
"""

import argparse
import csv
import io
import json
import random
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from openpyxl import load_workbook

import capplan
from capplan.bounds.claims import usd_per_h
from capplan.deployment.pools import Pool
from capplan.errors import CapplanWarning
from capplan.fleet.price import Price
from capplan.planning.autoscale.cases import Cases, outcome_of
from capplan.planning.budget import budget as budgets
from capplan.planning.budget.settings import BudgetSettings
from capplan.planning.configure.configuration import configurations
from capplan.planning.money.cost import HOURS_PER_MONTH, bills_of, usd_per_month
from capplan.planning.plan.purchase import purchase
from capplan.planning.plan.result import Plan
from capplan.planning.settings.plan import PlanSettings
from capplan.planning.shared_fleet.planned_llm import PlannedLlm, PlannedPool
from capplan.planning.shared_fleet.settings import SharedFleetSettings
from capplan.planning.shared_fleet.share_nodes import share_nodes
from capplan.report.columns import by_name
from capplan.report.fields import fields
from capplan.report.pages.candidates import candidate_values
from capplan.report.pages.plan import plan_values
from capplan.report.received.plan_figures import plan_figures
from capplan.report.render.json_text import plain
from capplan.report.workbook.plan_book import plan_workbook
from capplan.report.writers.focus import focus_csv, plan_charges

TRAFFIC: dict[str, Any] = {
    "workload": "synthetic:prompt=300,output=60,n=500",
    "rate": 5,
    "llm": "Llama-3.1-8B",
    "slo": "ttft=1s,tpot=30ms",
    "as_of": "2026-11-26",
}
GPUS = ("H100-SXM", "H200-SXM", "B200-SXM", "A100-80GB-SXM", "A100-40GB-SXM", "L40S")
KINDS = ("on-demand", "on-demand", "reserved:12", "reserved:36", "spot")


def main() -> None:
    """Compare the bills of random purchases; say what was compared."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(compared(given.count, given.seed))


def compared(count: int, seed: int = 0) -> str:
    """Return how many purchases were compared, each in how many places."""
    rng = random.Random(seed)
    base = capplan.plan(**TRAFFIC, gpu="H100-SXM", tp=1)
    purchases, places = 0, set()
    while purchases < count:
        drawn = _drawn(rng)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CapplanWarning)
            price = _price(drawn)
            if price is None:
                continue
            told = dict(_told(base, drawn, price, rng.randint(1, 40)))
        expected = told["cost"]
        for place, usd in told.items():
            assert abs(usd - expected) <= 0.011, (drawn, place, usd, expected)
        purchases += 1
        places |= set(told)
    return f"{purchases} purchases cost the same in {len(places)} places: " + ", ".join(
        sorted(places)
    )


def _drawn(rng: random.Random) -> dict[str, Any]:
    drawn: dict[str, Any] = {"gpu": rng.choice(GPUS), "tp": rng.choice((1, 2, 4, 8))}
    drawn["kind"] = rng.choice(KINDS)
    if rng.random() < 0.3:
        drawn["price"] = {drawn["gpu"]: rng.choice(("2.49", "2.49/gpu"))}
    elif rng.random() < 0.5:
        drawn["provider"] = rng.choice(("Lambda", "RunPod", "AWS", "Nebius", "GCP"))
    return drawn


def _price(drawn: dict[str, Any]) -> Price | None:
    """Return what a configuration of settings costs; None where it has no price."""
    (row,) = configurations(PlanSettings(**TRAFFIC, **drawn))
    return getattr(row, "price", None)


def _told(
    base: Plan, drawn: dict[str, Any], price: Price, count: int
) -> Iterator[tuple[str, float]]:
    """Yield a month's bill by the place that tells it. [$]"""
    settings = PlanSettings(**TRAFFIC, **drawn)
    plan = _with(base, drawn, price, count, settings)
    best = plan.best
    assert best is not None
    assert best.run is not None
    assert best.cost is not None
    assert plan.purchase is not None
    pools = best.run.deployment.pools
    yield "cost", best.cost.usd_per_month
    yield "capacity", usd_per_month(pools) or 0.0
    yield from _of_purchase(plan, settings, drawn, pools)
    cell = by_name(fields("what_if"))["usd_per_month"]
    yield "what-if cell", cell.value(SimpleNamespace(best=best))
    yield from _of_files(plan)
    pool = PlannedPool(
        "", best.gpu, pools[0].configuration.tp, count, price, drawn["tp"]
    )
    fleet = share_nodes(
        [PlannedLlm("one", "plan.json", (pool,))], SharedFleetSettings()
    )
    yield "fleet of one", fleet.usd_per_month or 0.0
    cases = Cases(None, None, None, best.run.deployment)  # type: ignore[arg-type]
    cases.buy_for(count)
    fixed = replace(best.run, deployment=cases.deployment)
    yield "autoscale, fixed", outcome_of(fixed).usd_per_month or 0.0
    if drawn["kind"] == "on-demand":
        yield "budget, static", _budgeted(plan, drawn)


def _with(
    base: Plan,
    drawn: dict[str, Any],
    price: Price,
    count: int,
    settings: PlanSettings,
) -> Plan:
    """Return a plan of other GPUs, at another price and count."""
    assert base.best is not None
    assert base.best.run is not None
    run = base.best.run
    configuration = replace(
        run.configuration, gpu=drawn["gpu"], tp=drawn["tp"], price=price
    )
    deployment = replace(run.deployment, pools=(Pool(configuration, count),))
    run = replace(run, deployment=deployment)
    best = replace(base.best, gpu=drawn["gpu"], run=run, cost=run.cost)
    best = replace(best, configuration=configuration)
    bought = purchase(settings, best)
    return replace(base, best=best, candidates=(best,), purchase=bought)


def _of_purchase(
    plan: Plan, settings: PlanSettings, drawn: dict[str, Any], pools: tuple[Pool, ...]
) -> Iterator[tuple[str, float]]:
    bought = plan.purchase
    assert bought is not None
    (mine,) = [row for row in bought.bills if row.is_planned]
    yield "table of bills", mine.usd_per_month
    for count in bought.count_costs:
        if count.name == "planned" and count.usd_per_month is not None:
            yield "counts, planned", count.usd_per_month
    if drawn["kind"] != "on-demand":
        return
    ways = {way.name: way.usd_per_month for way in bought.ways}
    yield "ways to pay", ways["on demand"]
    term = _price({**drawn, "kind": "reserved:12"}) if "price" not in drawn else None
    if term is not None and bought.ways:
        (pool,) = pools
        later = [replace(pool, configuration=replace(pool.configuration, price=term))]
        if {bill.provider for bill in bills_of(later)} == {
            row.provider for row in bought.bills
        }:  # else somebody quotes the term, and only these are asked
            less = usd_per_month(later) or 0.0
            on_demand = ways["on demand"] - ways["reserved, 12 months"] + less
            yield "--kind reserved:12", on_demand


def _of_files(plan: Plan) -> Iterator[tuple[str, float]]:
    best = plan.best
    assert best is not None
    values = plain(candidate_values(best))
    block = {**values, "gpus_per_replica": best.run.configuration.gpus}  # type: ignore[union-attr]
    hour = usd_per_h([block], [json.loads(json.dumps(values["price"]))])
    yield "certificate", HOURS_PER_MONTH * hour
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "plan.json")
        path.write_text(json.dumps(plan_values(replace(plan, certificate=None))))
        yield "diff", plan_figures(path).usd_per_month or 0.0
    book = load_workbook(io.BytesIO(plan_workbook(plan)), data_only=True)
    sheet, cell = book.defined_names["usd_per_month"].attr_text.split("!")
    yield "plan.xlsx", book[sheet][cell.replace("$", "")].value
    rows = csv.DictReader(io.StringIO(focus_csv(plan_charges(plan))))
    yield "plan.focus.csv", sum(float(row["BilledCost"]) for row in rows)


def _budgeted(plan: Plan, drawn: dict[str, Any]) -> float:
    """Return the static month of a budget of this purchase, on demand. [$]"""
    best = plan.best
    assert best is not None
    row = SimpleNamespace(replica_count=best.replica_count, run=best.run, launch=None)
    asked = {name: value for name, value in drawn.items() if name != "kind"}
    settings = BudgetSettings(
        **TRAFFIC, **asked, horizon_months=1, commit="none", fleet="static"
    )
    with mock.patch.object(
        budgets, "planned_at", lambda rates, *_: ([row] * len(rates), [])
    ):
        found = budgets.budget(settings)
    return found.months[0].bill.usd


if __name__ == "__main__":
    main()
