"""Scenarios, ways to pay and counts of a plan, by hand and beside what others say."""

from dataclasses import replace

import pytest

from capplan.planning.evaluate.probe import Probe
from capplan.planning.plan.plan import plan
from capplan.planning.plan.purchase import purchase
from capplan.planning.settings.plan import PlanSettings
from capplan.report.pages.purchase import paid_anyway

ASKED = {
    "workload": "synthetic:prompt=300,output=60,n=1000",
    "rate": 60,
    "llm": "Llama-3.1-8B",
    "gpu": "H100-SXM",
    "tp": 1,
    "slo": "ttft=500ms,tpot=12ms",
    "as_of": "2026-11-21",
}


def planned(**asked):
    settings = PlanSettings(**{**ASKED, **asked})
    return settings, plan(settings)


@pytest.fixture(scope="module")
def offered():
    """A plan on nodes of 8 GPUs at a provider's price, among others'."""
    return planned(provider="CoreWeave")


@pytest.fixture(scope="module")
def given():
    """A plan of GPUs at a price of the user's, who names no node."""
    return planned(price={"H100-SXM": "2.00"})


def test_the_counts_that_engines_needed_cost_what_the_range_says():
    _, of = planned(rate=200)
    low, high = of.best.replica_count_range

    usd = {row.replica_count: row.usd_per_month for row in of.purchase.count_costs}

    assert low <= of.best.replica_count < high
    assert (usd[low], usd[high]) == of.best.usd_per_month_range
    assert usd[of.best.replica_count] == of.best.cost.usd_per_month


def test_all_bills_stand_in_a_table_and_one_is_the_plans():
    _, of = planned()
    rows = of.purchase.bills

    usd = [row.usd_per_month for row in rows]
    (mine,) = [row for row in rows if row.is_planned]
    assert usd == sorted(usd)
    assert len(rows) == 9
    assert rows.index(mine) == 2
    assert mine.usd_per_month == pytest.approx(of.best.cost.usd_per_month)
    assert any(text.startswith("Akash") for text in of.purchase.left_out)


def test_one_gpu_is_billed_as_a_node_of_one_gpu():
    _, of = planned(rate=1)

    assert of.best.gpu_count == 1
    assert 2_800 < of.best.cost.usd_per_month < 5_000
    assert of.best.cost.nodes[0].stranded_gpus == 0


def test_replicas_that_fit_the_nodes_paid_for_are_simulated_and_said(offered):
    of = offered[1]
    more = of.purchase.paid_anyway

    assert of.best.replica_count < 8
    assert more.replica_count == 8
    assert more.slo_attainment >= of.best.run.judgement.attainment.share
    row = of.purchase.count_costs[-1]
    assert (row.replica_count, row.usd_against_planned) == (8, 0)
    said = paid_anyway(of.purchase, of.best.replica_count)
    assert f"run 8 ({more.attained}) for the same bill" in said


def test_nothing_is_idle_where_gpus_are_sold_one_by_one():
    _, of = planned(price={"H100-SXM": "2.00/gpu"})

    assert of.purchase.paid_anyway is None


def test_where_the_order_turns_around_at_one_provider_it_is_said():
    # Two GPUs of the best bill more at big, whose nodes have 8, than one of the other.
    _, of = planned()
    best = of.best
    price = best.configuration.price
    only = [ask for ask in price.asks if ask.provider == "CoreWeave"]
    cheap = replace(only[0], usd_per_gpu_h=0.5, asked=())
    other = replace(
        best,
        run=replace(
            best.run,
            deployment=replace(
                best.run.deployment,
                pools=tuple(
                    replace(
                        pool, configuration=replace(pool.configuration, price=cheap)
                    )
                    for pool in best.run.deployment.pools
                ),
            ),
        ),
    )

    (said,) = purchase(PlanSettings(**ASKED), best, [best, other]).turned

    assert "a month at CoreWeave, the best" in said


def test_on_demand_is_the_plans_bill_and_terms_are_its_discounts(given):
    of = given[1]
    month = of.best.replica_count * 2.00 * 730

    rows = {way.name: way for way in of.purchase.ways}

    assert rows["on demand"].usd_per_month == pytest.approx(month)
    year = rows["reserved, 12 months"]
    # Nobody quotes a term for a price of one's own: 35 % less is assumed.
    assert year.is_assumed
    assert year.usd_per_month == pytest.approx(0.65 * month)
    assert year.usd_saved_per_month == pytest.approx(0.35 * month)
    assert year.break_even == pytest.approx(0.65)
    assert rows["reserved, 36 months"].usd_per_year == pytest.approx(0.45 * 12 * month)


def test_a_quoted_term_is_taken_before_an_assumed_one(tmp_path):
    path = tmp_path / "prices.csv"
    path.write_text(
        "gpu,usd_per_gpu_h,kind,term_months,provider\n"
        "H100-SXM,3.00,on-demand,,mine\n"
        "H100-SXM,1.80,reserved,12,mine\n"
    )

    _, of = planned(prices=str(path), provider="mine")

    year = next(way for way in of.purchase.ways if way.name == "reserved, 12 months")
    assert year.usd_per_node_h == pytest.approx(1.80)
    assert year.break_even == pytest.approx(0.6)


def test_spot_pays_for_the_nodes_beside_those_needed(tmp_path):
    path = tmp_path / "prices.csv"
    path.write_text(
        "gpu,usd_per_gpu_h,kind,interruption_per_month,max_share,provider\n"
        "H100-SXM,4.00,on-demand,,,mine\n"
        "H100-SXM,1.00,spot,0.2,0.5,mine\n"
    )

    _, of = planned(prices=str(path), provider="mine", rate=200)

    count, rows = of.best.replica_count, {way.name: way for way in of.purchase.ways}
    needed = count // 2
    spot = rows["spot in part"].usd_per_month / 730 - 4.00 * (count - needed)
    assert needed > 0
    # 1 $ each, at least as many as are needed, and not twice as many.
    assert needed - 1e-9 <= spot <= 2 * needed
    assert spot == pytest.approx(round(spot))


def test_a_plan_that_is_paid_as_a_term_says_why_no_other_way_is_shown(tmp_path):
    path = tmp_path / "prices.csv"
    path.write_text(
        "gpu,usd_per_gpu_h,kind,term_months,provider\nH100-SXM,1.80,reserved,12,mine\n"
    )

    _, of = planned(prices=str(path), kind="reserved:12")

    assert of.purchase.ways == ()
    assert "reserved:12" in of.purchase.no_ways


def test_one_more_replica_is_shown_with_its_bill_and_what_it_attains(offered):
    settings, of = offered
    best = of.best
    count = best.replica_count
    known = Probe.of(best.run)
    attains = {count - 1: 0.9, count: 0.995}
    probes = tuple(
        replace(known, replica_count=n, slo_attainment=share, meets=n >= count)
        for n, share in attains.items()
    )

    rows = purchase(settings, replace(best, probes=probes)).count_costs

    assert [row.replica_count for row in rows] == [count - 1, count, count + 1]
    fewer, as_planned, more = rows
    assert (fewer.slo_attainment, fewer.meets) == (0.9, False)
    assert as_planned.usd_against_planned == 0
    assert as_planned.attainment_with_one_lost == 0.9
    assert more.slo_attainment is None  # it was not simulated
    assert more.attainment_with_one_lost == 0.995
    # Eight replicas of one GPU share a node: the next costs nothing until it is full.
    full = -(-(count + 1) // 8) - -(-count // 8)
    node_usd = best.cost.nodes[0].usd_per_h / best.cost.nodes[0].count * 730
    assert more.usd_against_planned == pytest.approx(full * node_usd)


def test_a_plan_without_a_price_has_counts_and_no_bills(offered):
    settings, of = offered
    run = of.best.run
    free = replace(run.configuration, price=None)
    pool = replace(run.deployment.pool, configuration=free)
    run = replace(run, deployment=replace(run.deployment, pools=(pool,)))

    bought = purchase(settings, replace(of.best, run=run, cost=None))

    assert bought.bills == ()
    assert bought.ways == ()
    assert {row.usd_per_month for row in bought.count_costs} == {None}
