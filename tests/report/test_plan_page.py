"""The page of a plan: bill, remarks, classes, and what of it is in which file."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from capplan.fleet.price import Price
from capplan.planning.money.cost import usd_per_month
from capplan.planning.plan.result import Assumption
from capplan.report.pages.assumptions import grouped
from capplan.report.pages.plan import plan_page
from capplan.report.uncertain import settled_by
from capplan.units import format_usd
from tests.deployments import changed


def section(plan, heading):
    (found,) = [x for x in plan_page(plan).sections if x.heading == heading]
    return found


def bill(plan):
    return [
        " ".join(column.text(row) for column in table.shown)
        for table in section(plan, "Cost").full_tables
        for row in table.rows
    ]


def with_price(plan, price):
    run = changed(plan.best.run, price=price)
    return replace(plan, best=replace(plan.best, run=run, cost=run.cost))


def test_every_line_is_its_quantity_times_its_unit_price_in_words(plan):
    # 3 GPUs; within 40 s 1,437,000 tokens of prompts and 482,000 of answers, a million
    # in 0.00773 and 0.023 h, of which prompts take 18 % of the GPU time.
    assert bill(plan) == [
        "per hour 3 GPUs × $2.49 per GPU-hour = $7.47",
        "per month 730 h × $7.47 per hour = $5,453",
        "per year 8,760 h × $7.47 per hour = $65,437",
        "per million input tokens 0.00137 h × $7.47 per hour = $0.0102*",
        "per million output tokens 0.0189 h × $7.47 per hour = $0.141*",
        "per million total tokens 0.00579 h × $7.47 per hour = $0.0432*",
    ]


@pytest.mark.parametrize("doubt", ["is_guess", "is_stale"])
def test_a_doubtful_price_stars_every_line(plan, doubt):
    starred = bill(with_price(plan, Price(2.49, "somebody", **{doubt: True})))

    assert all(line.endswith("*") for line in starred)


def test_without_a_price_there_is_no_bill_but_what_to_give(plan, infeasible):
    assert bill(with_price(plan, None)) == []
    assert section(with_price(plan, None), "Cost").notes == [
        "No price is known for H100-SXM; set one with --price H100-SXM=USD_PER_H."
    ]
    assert "Cost" not in [each.heading for each in plan_page(infeasible).sections]


def test_remarks_are_those_of_candidates_pruned_infeasible_or_coarse(plan):
    remarks = dict(section(plan, "Candidates").known_facts)

    assert remarks["H200-SXM × TP 1"].startswith("works, costs more (replicas ± 10 %)")
    assert remarks["A100-80GB-SXM × TP 1"].startswith("not simulated: needs at least 5")
    assert remarks["L4 × TP 1"].startswith("infeasible: TPOT takes ")
    assert "H100-SXM × TP 1" not in remarks


def test_a_candidate_in_doubt_says_so_in_its_place_and_beside_the_answer(doubted):
    doubts = "no benchmark of this LLM backs it: load-test before you buy"

    assert doubted.best.gpu == "H100-SXM"
    facts = section(doubted, "How sure it is").known_facts
    (beside,) = [text for label, text in facts if label == "cheaper, unsure"]
    assert re.fullmatch(
        r"\d+ GPUs = .* of MI300X, \$[\d.]+ per hour \(cautious: \d+ replicas, "
        rf"\$[\d,]+ a month\): {doubts}; it would save \$[\d,]+ a month: measure it, "
        r"then `capplan fit --from sweep.csv --onto MI300X/Llama-3.1-8B/tp1 --out "
        "mine.yaml`",
        beside,
    )
    remarks = dict(section(doubted, "Candidates").known_facts)
    assert remarks["MI300X × TP 1"].startswith(f"estimated: {doubts} (cautious: ")


def test_an_answer_in_doubt_says_so_itself(doubted):
    alone = replace(doubted, best=doubted.best_estimated)

    facts = dict(section(alone, "How sure it is").known_facts)

    assert "nine of ten " in facts["real engines"]
    said = plan_page(alone).answer.sure
    assert said.short.startswith("estimated: up to ")
    assert "no benchmark of this LLM backs it" in said.more
    [command] = [s for s in plan_page(alone).sections if "load test" in s.heading]
    assert command.command == (
        "capplan fit --from results --onto MI300X/Llama-3.1-8B/tp1 --plan plan.json "
        "--out mine.yaml"
    )


@pytest.mark.parametrize(
    ("unused", "caching", "text"),
    [
        (True, False, "on; no request shares a prefix, so simulated without"),
        (False, True, "on"),
        (False, False, "off"),
    ],
)
def test_one_report_says_one_thing_of_prefix_caching(plan, unused, caching, text):
    configuration = plan.best.run.configuration
    engine = replace(configuration.engine, prefix_caching=caching)
    run = changed(plan.best.run, caching_unused=unused, engine=engine)

    facts = dict(
        section(
            replace(plan, best=replace(plan.best, run=run)), "Engine settings"
        ).known_facts
    )

    assert facts["prefix_caching"] == text


def test_classes_have_their_own_targets_on_the_page(plan, classed):
    (table,) = section(classed, "Classes").full_tables

    assert [row.class_name for row in table.rows] == ["chat", "code"]
    assert [row.attainment for row in table.rows] == [0.99, 0.95]
    assert "each of 2 classes in time" in plan_page(classed).answer.peak.more
    assert not section(plan, "Classes").full_tables


def test_assumptions_are_kept_apart_by_how_they_are_known():
    rows = tuple(
        Assumption(how, how, how, how) for how in ("given", "assumed", "own", "fitted")
    )

    assert [heading for heading, _ in grouped(rows)] == [
        "Fitted to measurements",
        "Assumed",
        "Given by you",
        "own",
    ]


def test_an_infeasible_plan_says_so_and_every_reason(infeasible):
    page = plan_page(infeasible)

    assert page.headline == "No GPU named here holds ttft ≤ 1 s, tpot ≤ 1 ms."
    assert page.is_failure
    remarks = dict(section(infeasible, "Candidates").known_facts)
    assert len(remarks) == 4
    assert "TPOT takes 7.03 ms at least, not 1 ms" in remarks["H100-SXM × TP 1"]


def test_a_plan_without_what_a_profile_would_tell_has_a_page(plan):
    run = changed(plan.best.run, price=None, profile=None)
    bare = replace(plan.best, run=run, cost=None, bound=None, probes=(), launch=None)

    known = replace(plan, best=bare, candidates=(bare,), best_by_gpus=bare)

    facts = dict(section(known, "Why this many GPUs").known_facts)
    assert facts["lower bound"] == "none known"
    assert "one fewer" not in facts


def test_no_two_files_or_columns_of_one_share_a_name(classed):
    page = plan_page(classed)

    assert {"plan.csv", "classes.csv", "lengths.csv", "counts.csv"} <= set(page.csv)
    for table in page.csv.values():
        names = [column.name for column in table.named]
        assert len(set(names)) == len(names)


def test_each_simulated_count_has_its_cost_of_a_month(plan):
    (table,) = section(plan, "Replicas against cost").tables
    (usd,) = [column for column in table.columns if column.heading == "$ per month"]

    run = plan.best.run
    for row in table.rows:
        pools = run.deployment.with_replicas(row.replica_count).pools
        assert usd.text(row) == format_usd(usd_per_month(pools))
    probed = {probe.replica_count for probe in plan.best.probes}
    assert probed <= {row.replica_count for row in table.rows}


def test_no_command_is_proposed_that_fits_nothing_onto_ranks(doubted):
    ranks = SimpleNamespace(gpu="B200-SXM", tp=1, layout_name="dp4-ep4")

    assert settled_by(doubted, ranks) == ""
