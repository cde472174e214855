"""The first screen of compared systems: who needs least, and what switching saves."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from capplan.planning.compare.compare import Comparison
from capplan.planning.compare.equal_hardware import OperatingPoint
from capplan.planning.compare.system_price import SystemResult
from capplan.planning.evaluate.probe import Probe
from capplan.report.compare_answer import winners
from capplan.report.page import LABELS
from capplan.report.pages.comparison import comparison_page, comparison_values
from tests.deployments import candidate_of
from tests.report.answered import configuration, screen, told_within

LATENCIES = ("ttft_s", "tpot_s", "longest_gap_s", "e2e_s", "normalized_latency_s")


USE = SimpleNamespace(
    batch_requests=np.array([30.0, np.nan, 82.2]),
    kv_share=np.array([0.2, 0.61, 0.5]),
    preemptions=np.array([0.0, 2.0, 1.0]),
)


def point(ttft_s=0.4, tpot_s=0.025, users=None):
    seen_s = dict.fromkeys(LATENCIES, (0.1, 0.1, 0.1, 0.1, 0.2))
    seen_s |= {"ttft_s": (ttft_s,) * 5, "tpot_s": (tpot_s,) * 5}
    told = {"latency_s": seen_s, "rate_per_s": 40.0, "meets": True, "users": users}
    shares = {"slo_attainment": 0.99, "slo_attainment_interval": (0.98, 0.995)}
    counts = dict.fromkeys(("request_count", "preemptions", "swaps"), 7)
    tokens = dict.fromkeys(("output_tokens_per_s", "span_output_tokens_per_s"), 9e3)
    rest = {"attainment_by_class": {}, "goodput_per_s": 39.0, "paused_s": 0.0}
    return OperatingPoint(**told, **shares, **counts, **tokens, **rest)


def needing(count=4, **more):
    """Return a feasible candidate whose run was judged."""
    found = candidate_of(configuration(**more), count)
    judged = SimpleNamespace(classes=(), attainment=SimpleNamespace(share=0.9912))
    run = replace(found.run, judgement=judged, simulation=SimpleNamespace(series=USE))
    return replace(found, run=run)


def system(name="vllm-v1", candidate=None, **more):
    candidate = candidate or needing()
    given = {"served": point(), "max_rate_per_s": 47.8, "source": "", "given": ()}
    return SystemResult(
        name, status="feasible", candidate=candidate, **{**given, **more}
    )


def missing(name="orca", status="infeasible", reason="TPOT takes 5 ms at least; x"):
    return SystemResult(name, "", (), status, reason)


def comparison(*systems, **more):
    at = configuration()
    given = {
        "llm": "gpt-oss-120b",
        "slo_text": "ttft ≤ 1 s, tpot ≤ 30 ms",
        "slo_limits_s": {"ttft": 1.0, "tpot": 0.03},
        "attainment": 0.99,
        "attainment_text": "99 %",
        "trace_source": "sharegpt",
        "trace_notes": (),
        "request_count": 1000,
        "rate_per_s": 40.0,
        "mean_prompt_tokens": 288.0,
        "mean_output_tokens": 263.0,
        "longest_request_tokens": 19180,
        "seed": 0,
        "hardware": at,
        "replica_count": 4,
    }
    return Comparison(systems=systems, **{**given, **more})


def unpriced(count):
    return replace(needing(count), cost=None)


def of_users(name, count, users):
    served = point(users=200)
    most = {"max_rate_per_s": None, "max_users": users}
    return system(name, needing(count), served=served, **most)


LONG = "vllm-v1-disaggregated"
CASES = {
    "alike": lambda: comparison(system(), system("sarathi")),
    "dearer": lambda: comparison(
        system(), system("orca", needing(7), served=point(3.4), max_rate_per_s=32.5)
    ),
    "one": lambda: comparison(system()),
    "one holds": lambda: comparison(system(), missing()),
    "same bill": lambda: comparison(
        system("vllm-v1", needing(5, provider="CoreWeave")),
        system("orca", needing(7, provider="CoreWeave")),
    ),
    "refuses": lambda: comparison(
        system(), system("static", needing(1), refused_share=0.0009)
    ),
    "refused": lambda: comparison(system(), missing(LONG, "refused", "no link " * 20)),
    "no price": lambda: comparison(
        system(candidate=unpriced(3)), system("orca", unpriced(5))
    ),
    "users": lambda: comparison(
        of_users("vllm-v1", 4, 260),
        of_users("orca", 6, 180),
        asked_by="200 users, no think time",
    ),
    "published": lambda: comparison(system(), system("sarathi"), is_published=True),
    "none": lambda: comparison(
        missing("vllm-v1"), missing(), hardware=None, replica_count=None
    ),
    "interrupted": lambda: comparison(
        missing("orca", "interrupted", "not simulated before Ctrl-C"),
        hardware=None,
        interrupted=True,
    ),
    "other share": lambda: comparison(
        system(),
        system(LONG, served=None, not_served="two pools take two replicas"),
        attainment=0.95,
    ),
    "many": lambda: comparison(
        *(system(f"fastserve:level={k}", needing(k)) for k in range(1, 18)),
        warnings=("a warning so long that it takes a second line " * 3,) * 2,
    ),
}


@pytest.fixture(params=CASES)
def found(request):
    return CASES[request.param]()


@pytest.mark.parametrize("width", [100, 80])
def test_it_fits_a_screen(found, width):
    page = comparison_page(found)

    told = told_within(page, width)

    assert not winners(found) or told == list(LABELS)


def test_its_amounts_are_those_of_the_json(found):
    page, values = comparison_page(found), comparison_values(found)

    rows = {row["name"]: row for row in values["systems"]}
    shown = screen(page).partition("  system ")[2].splitlines()[1:]
    for line in shown:
        name = (line.removeprefix(">").split() or [""])[0]
        if (usd := rows.get(name, {}).get("usd_per_month")) is not None:
            assert f"${usd:,.0f}" in line
    for row in winners(found):
        usd = row.candidate.cost and row.candidate.cost.usd_per_month
        assert usd is None or f"for ${usd:,.0f} a month." in page.headline


def test_line_1_names_the_systems_that_need_least():
    titles = {name: comparison_page(case()).headline for name, case in CASES.items()}

    assert titles["alike"].startswith("vllm-v1 and sarathi need least: 4 H100-SXM GPUs")
    assert titles["dearer"].startswith("vllm-v1 needs least: 4 H100-SXM GPUs for $")
    assert titles["no price"] == "vllm-v1 needs least: 3 H100-SXM GPUs."
    assert titles["none"] == "No system compared holds ttft ≤ 1 s, tpot ≤ 30 ms."
    assert titles["interrupted"].startswith("No system is known yet to hold ")


@pytest.mark.parametrize("case", ["alike", "same bill", "published"])
def test_where_no_bill_differs_nothing_is_to_be_changed(case):
    answer = comparison_page(CASES[case]()).answer

    assert answer.next.text == "keep what you run · no system here saves a dollar"
    assert "whichever you take" in answer.cost.text


def test_where_a_bill_differs_the_saving_is_that_of_the_dearest():
    found = CASES["dearer"]()
    usd = [row.candidate.cost.usd_per_month for row in found.systems]

    page = comparison_page(found)

    saved = f"${usd[1] - usd[0]:,.0f}"
    told = f"run vllm-v1 · orca costs {saved} a month more"
    assert page.answer.next.text == told
    assert [x.facts for x in page.sections if x.topic == "next"] == [[("1", told)]]
    assert f"{saved} more with orca" in page.answer.cost.text
    assert f"orca, costs {saved} a month more" in page.lead
    assert re.search(r"orca +7 .*carries 32.5/s, ttft 3.4 s, not 1 s", screen(page))


def test_a_system_that_misses_is_a_row_with_its_reason():
    shown = screen(comparison_page(CASES["one holds"]()))

    assert re.search(r"orca +TPOT takes 5 ms at least", shown)


def test_a_system_that_refuses_requests_says_so_and_wins_against_none():
    page = comparison_page(CASES["refuses"]())

    assert page.headline.startswith("vllm-v1 needs least")
    assert "refuses 0.09 %" in screen(page)
    assert "whichever" not in screen(page)
    assert "no change saves" not in page.lead


def test_users_are_counted_where_they_ask():
    shown = screen(comparison_page(CASES["users"]()))

    assert "200 users, no think time" in shown
    assert "carries 260 users" in shown


def test_beyond_six_rows_the_rest_is_counted():
    assert "12 more systems" in screen(comparison_page(CASES["many"]()))


def test_none_that_holds_is_a_failure_and_says_what_to_relax():
    page = comparison_page(CASES["none"]())

    assert page.is_failure
    assert page.answer.next.text.startswith("relax what is missed")


def test_its_topics_have_their_parts():
    page = comparison_page(CASES["dearer"]())

    topics = {part.topic for part in page.sections if part.has_text}
    assert topics >= {"count", "peak", "run", "assumptions", "sure"}


def why(comparison):
    page = comparison_page(comparison)
    part = next(x for x in page.sections if x.heading == "Why this many GPUs")
    assert part.topic == "count"
    return dict(part.known_facts)


def fewer(count, share):
    return Probe(count, share, (0.0, 1.0), 0.1, 0.1, 0.1, meets=False, stable=True)


def test_why_says_what_limits_the_cheapest_and_the_dearest():
    four = replace(needing(4), binding="TPOT", probes=(fewer(3, 0.91),))
    seven = replace(needing(7), binding="KV", probes=(fewer(6, 0.98),))
    slow = {"max_rate_per_s": 23.9, "binding_setting": "KV"}
    found = comparison(
        system("orca", seven, **slow), system("vllm-v1", four), system("sarathi")
    )

    facts = why(found)

    assert [*facts] == ["vllm-v1 needs 4 GPUs", "orca needs 7 GPUs", "on the same GPUs"]
    used = "4 replicas: up to 82 of 1,024 seats, 61 % of KV memory; 3 preemptions"
    assert facts["vllm-v1 needs 4 GPUs"] == (
        "limited by TPOT, the limit missed most often; "
        f"3 replicas: 91 % of requests in time; {used}"
    )
    assert facts["orca needs 7 GPUs"].startswith("limited by KV memory: ")
    assert "6 replicas: 98 % of requests in time" in facts["orca needs 7 GPUs"]
    assert facts["on the same GPUs"] == (
        "vllm-v1 carries 47.8 requests/s, orca carries 23.9 requests/s, 50 % of that "
        "(KV binds)"
    )


def test_why_says_of_systems_alone_of_users_and_of_none_what_is_known():
    assert [*why(CASES["one"]())] == ["vllm-v1 needs 4 GPUs", "on the same GPUs"]
    assert "180 users, 69 % of that" in why(CASES["users"]())["on the same GPUs"]
    assert why(CASES["none"]()) == {}
