"""The first screen of what a fleet carries: its bill, its rate and what to do next."""

import re
from dataclasses import replace

import pytest

from capplan.deployment.pools import Deployment
from capplan.planning.configure.excluded import Excluded
from capplan.planning.money.cost import cost
from capplan.planning.size.capacity import _rank
from capplan.planning.size.served import Capacity, Missed, Served
from capplan.report.page import LABELS
from capplan.report.pages.capacity import capacity_page, capacity_values
from tests.report.answered import configuration, screen, told_within

SLO = "ttft ≤ 1 s, tpot ≤ 30 ms"
LOOSE = "ttft ≤ 2 s, tpot ≤ 60 ms"
OF_CLASSES = "; ".join(f"class{k}: ttft ≤ {k} s, tpot ≤ 3{k} ms" for k in range(1, 6))


def served(count=2, rate_per_s=20.0, users=100, slo_text=SLO, **more):
    whose = {
        "data_parallel_size",
        "gpu",
        "tp",
        "llm",
        "price",
        "provider",
        "latency_ms",
        "kv_blocks",
    }
    of = {key: more.pop(key) for key in whose & {*more}}
    fleet = Deployment.of(configuration(**of), count)
    row = Served(fleet, slo_text, "99 %", cost(fleet.pools))
    if rate_per_s is None:
        return replace(
            row, **{"reason": "TPOT takes 5 ms at least, not 1 ms; with each"} | more
        )
    between = {
        "max_rate_per_s": rate_per_s,
        "max_rate_per_s_interval": (rate_per_s, rate_per_s * 1.03),
        "max_users": users,
    }
    return replace(row, **between | more)


def capacity(*rows, llm="gpt-oss-120b", **more):
    given = {"think": "no think time", "trace_source": "sharegpt", "excluded": ()}
    lengths = {"mean_prompt_tokens": 288.0, "mean_output_tokens": 263.0}
    return Capacity(llm, rows, **{**given, **lengths, **more})


GIVEN = {"latency_ms": "9,0.04,0,0.08,0.00005", "kv_blocks": 4000}
MANY = "B200-SXM", "H200-SXM", "H100-SXM"
CASES = {
    "one": lambda: capacity(served(4)),
    "one GPU": lambda: capacity(served(1)),
    "layouts": lambda: capacity(
        *(served(8 // tp, 50.0 - tp, tp=tp) for tp in (1, 2, 4, 8))
    ),
    "GPU types": lambda: capacity(
        *(served(3, 30.0, gpu=gpu) for gpu in ("B200-SXM", "H200-SXM", "H100-SXM"))
    ),
    "idle": lambda: capacity(served(4, provider="CoreWeave")),
    "no price": lambda: capacity(replace(served(2), cost=None)),
    "given times": lambda: capacity(served(2, price="H100-SXM=2", **GIVEN), llm=None),
    "an estimate": lambda: capacity(served(2, gpu="L40S", llm="Qwen3-32B", tp=2)),
    "objectives": lambda: capacity(served(2), served(2, 44.4, slo_text=LOOSE)),
    "classes": lambda: capacity(served(2, slo_text=OF_CLASSES)),
    "a day": lambda: capacity(served(2, 12.3456, busiest_hour_per_s=34.56)),
    "users": lambda: capacity(served(2), think="think time exp:20 s"),
    "no users": lambda: capacity(served(2, users=None)),
    "nothing": lambda: capacity(
        served(2, None), excluded=(Excluded("L4", 1, "does not fit"),)
    ),
    "nothing elsewhere": lambda: capacity(
        served(2), *(served(2, None, gpu=gpu) for gpu in ("H200-SXM", "B200-SXM"))
    ),
    "ranks": lambda: capacity(
        served(4, 190.0, 1420, gpu="B200-SXM"),
        served(1, 226.0, 1448, tp=1, data_parallel_size=4, gpu="B200-SXM"),
    ),
    "many": lambda: capacity(
        *(served(2, 40.0 - tp, gpu=gpu, tp=tp) for gpu in MANY for tp in (1, 2, 4)),
        warnings=("a warning so long that it takes a second line " * 3,) * 2,
    ),
}


@pytest.fixture(params=CASES)
def found(request):
    return CASES[request.param]()


@pytest.mark.parametrize("width", [100, 80])
def test_it_fits_a_screen(found, width):
    page = capacity_page(found)

    told = told_within(page, width)

    assert page.is_failure or told == list(LABELS)


def test_its_amounts_are_those_of_the_json(found):
    page, values = capacity_page(found), capacity_values(found)

    usd, shown = values["usd_per_month"], screen(page)
    assert usd is None or f"${usd:,.0f}" in page.headline or page.is_failure
    assert f"{values['gpu_count']} {values['gpu']} GPU" in page.headline
    in_rows = {round(row["usd_per_month"]) for row in values["rows"] if usd is not None}
    table = shown.partition("instead")[2]
    amounts = re.findall(r"(?<![+−])\$([\d,]+)", table)
    assert {int(text.replace(",", "")) for text in amounts} <= {*in_rows, 0}


def test_line_1_is_fleet_rate_and_bill():
    assert re.fullmatch(
        r"4 H100-SXM GPUs carry 20 requests/s for \$[\d,]+\*? a month\.",
        capacity_page(CASES["one"]()).headline,
    )
    assert capacity_page(CASES["one GPU"]()).headline.startswith(
        "1 H100-SXM GPU carries"
    )
    assert capacity_page(CASES["no price"]()).headline.endswith("carry 20 requests/s.")
    assert "12.3 requests/s, 34.6 in the busiest hour," in (
        capacity_page(CASES["a day"]()).headline
    )


def test_a_fleet_that_carries_nothing_says_which_limit_and_fails():
    page = capacity_page(CASES["nothing"]())

    assert page.is_failure
    assert page.headline == f"2 H100-SXM GPUs carry nothing within {SLO}."
    assert page.answer.peak.text.startswith("misses: TPOT takes 5 ms")
    assert page.answer.next.text.startswith("relax what is missed")


def test_a_fleet_that_holds_any_rate_is_no_failure():
    told = "holds any rate: all requests could arrive at once"
    page = capacity_page(capacity(served(2, None, reason=told)))

    assert not page.is_failure
    assert page.headline.startswith("2 H100-SXM GPUs carry any rate for $")
    assert page.answer.peak.text == told


def test_idle_gpus_are_paid_and_to_be_used():
    page = capacity_page(CASES["idle"]())

    assert "4 of 8 GPUs idle" in page.answer.buy.text
    assert page.answer.next.text == (
        "use the 4 idle GPUs, which are paid · --max-gpus 8 --provider CoreWeave"
    )
    assert "all GPUs of its nodes" in screen(page)
    assert "$0" in screen(page)
    assert "idle" not in screen(capacity_page(CASES["one GPU"]()))


def test_without_a_price_the_flag_that_gives_one_is_said():
    page = capacity_page(CASES["no price"]())

    assert page.answer.cost.text == "unknown: --price H100-SXM=USD_PER_H"


def test_engines_that_were_tested_tell_the_range_of_rates():
    row = served(2)
    low, high = row.pool.configuration.capacity_ratio

    assert row.sustained_per_s == (20 * low, 20 * high)
    said = capacity_page(capacity(row)).answer.sure.text
    assert re.fullmatch(
        r"checked: [\d.]+ to [\d.]+ requests/s · for 80 % of \d+ load tests", said
    )


def test_times_that_no_engine_backs_are_estimated_and_to_be_tested():
    answer = capacity_page(CASES["an estimate"]()).answer

    assert answer.sure.text.startswith("estimated: from ")
    assert answer.next.text == "test 2 L40S for an hour, about $10"


def test_a_fleet_whose_requests_cost_less_is_named():
    dear = served(2, 20.0, gpu="H200-SXM", price="H200-SXM=4")
    cheap = served(2, 19.0, price="H100-SXM=2")

    answer = capacity_page(capacity(dear, cheap)).answer

    assert answer.next.text.startswith("weigh H100-SXM, 2 replicas × 1 GPU · ")
    assert "% less a request" in answer.next.text


def test_a_fleet_in_doubt_comes_behind_those_that_load_tests_back():
    sure, (doubted,) = served(2, 10.0), CASES["an estimate"]().rows
    nothing = served(2, None)

    assert sorted([nothing, doubted, sure], key=_rank) == [sure, doubted, nothing]
    shown = screen(capacity_page(capacity(sure, doubted)))
    assert "20 requests/s, estimated" in shown


def test_another_objective_is_a_row_with_what_it_would_carry():
    shown = screen(capacity_page(CASES["objectives"]()))

    assert re.search(rf"within {LOOSE} +2 .*44.4 requests/s, 100 users", shown)


def why(page):
    part = next(part for part in page.sections if part.heading == "Why this rate")
    assert part.topic == "count"
    return dict(part.known_facts)


def test_it_is_said_what_the_next_rate_misses_and_which_requests_cost_least():
    dear = served(
        price="H100-SXM=3",
        upper_bound_rate_per_s=41.2,
        max_users_interval=(100, 103.0),
        missed=Missed(20.6, 0.981, "TPOT"),
    )
    cheap = served(2, 10.0, gpu="H200-SXM", price="H200-SXM=1")

    found = why(capacity_page(capacity(dear, cheap)))

    assert found == {
        "misses the SLO": "20.6 requests/s: 98.1 % in time, asked 99 %",
        "limited by": "TPOT, the limit missed most often",
        "no scheduler carries": "more than 41.2 requests/s, with these iteration times",
        "users": "103 are too many",
        # 2 GPUs at $1 an hour over 36,000 requests; 2 at $3 over 72,000
        "1,000 requests cost": "$0.0556 by H200-SXM, 2 replicas × 1 GPU; "
        "$0.0833 by H100-SXM, 2 replicas × 1 GPU",
    }


def test_of_why_only_what_is_known_is_said():
    full = replace(served(), missed=Missed(20.6, 0.5, "KV"))

    assert why(capacity_page(capacity(full)))["limited by"].startswith("KV memory: ")
    assert [*why(capacity_page(capacity(full)))] == ["misses the SLO", "limited by"]
    for case in ("one", "nothing"):  # a fleet alone has its cost on the first screen
        assert why(capacity_page(CASES[case]())) == {}


def test_every_topic_of_the_page_has_its_part():
    page = capacity_page(CASES["nothing elsewhere"]())

    topics = {part.topic for part in page.sections if part.has_text}
    of = {"count", "candidates", "price", "assumptions", "sure", "next"}
    assert topics == of


def test_the_chart_says_in_its_title_what_the_best_fleet_carries():
    page = capacity_page(capacity(served(), served(rate_per_s=9.0)))
    none = capacity(served(rate_per_s=None, users=None))

    assert page.chart.title == "2 H100-SXM GPUs carry 20 requests/s as TP 1"
    assert page.chart.svg.count("<rect") == 2
    assert capacity_page(none).chart is None


def test_all_that_is_to_be_done_next_is_a_topic():
    page = capacity_page(CASES["idle"]())

    (part,) = [part for part in page.sections if part.topic == "next"]
    first, *others = [text for _, text in part.known_facts]
    assert first == page.answer.next.text
    assert others[-1].startswith("size for your own peak")
