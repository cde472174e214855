"""Defaults that decide nothing: the same seats, tuned budgets, room for most."""

import math

import numpy as np
import pytest

import capplan
from capplan.errors import InputError
from capplan.planning.compare import compare as comparing
from capplan.planning.compare.compare import compare
from capplan.planning.compare.longest_request import room_tokens, slo_of_rest
from capplan.planning.compare.settings import CompareSettings
from capplan.planning.compare.systems import SYSTEMS, resolve
from capplan.planning.evaluate.highest_rate import STEP, highest_rate
from capplan.planning.settings.plan import PlanSettings
from capplan.report.pages.comparison import comparison_values, notes
from capplan.workload.slo import parse_slo
from capplan.workload.trace import Trace

pytestmark = pytest.mark.thorough

ASKED = {
    "workload": "synthetic:prompt=300,output=lognormal(median=80,sigma=0.6),n=2000",
    "rate": 60,
    "llm": "Llama-3.1-8B",
    "gpu": "H100-SXM",
    "tp": 1,
    "slo": "ttft=500ms,tpot=20ms",
    "as_of": "2026-11-01",
}
LONG = "synthetic:prompt=lognormal(median=400,sigma=0.9),output=100,n=1000"


def settings(**more):
    return CompareSettings(**{**ASKED, **more})


def told(comparison, name):
    return " | ".join(text for of, text in notes(comparison) if of == name)


@pytest.fixture(scope="module")
def gaps():
    """Two systems that cut prompts, as tuned and as published, with short gaps."""
    asked = {"systems": "vllm-v1,sarathi", "workload": LONG, "rate": 12, "rates": 12}
    asked |= {"slo": "ttft=500ms,tpot=20ms,tbt=60ms", "replicas": 2}
    asked |= {"engine": "vllm@0.12"}
    return [compare(settings(**asked, published=each)) for each in (False, True)]


@pytest.fixture(scope="module")
def seats():
    """Two that do not, with a limit on TTFT alone."""
    asked = {"systems": "fastserve,orca", "rate": 12, "rates": 12, "slo": "ttft=1s"}
    asked |= {"host_kv_gib": 400, "workload": LONG}
    return [compare(settings(**asked, published=each)) for each in (False, True)]


def test_by_default_every_system_has_the_same_seats_and_its_own_tuned_budget():
    plain = PlanSettings(**ASKED)
    asked = [resolve(name, plain, 700) for name in SYSTEMS]

    assert {each.settings.max_num_seqs for each in asked} == {None}
    by_name = {each.name: each for each in asked}
    assert by_name["sarathi"].settings.max_num_batched_tokens is None
    assert by_name["fastgen"].budgets == (4096, 2048, 1024, 768, 512)
    assert by_name["orca"].budgets == ()  # it has no budget


def test_a_tuned_budget_saves_gpus(gaps):
    vllm = gaps[0].systems[0]

    assert vllm.tuned.configuration.engine.max_num_batched_tokens < 8192
    assert vllm.tuned.gpu_count < vllm.published.gpu_count
    assert vllm.candidate is vllm.tuned


@pytest.mark.slow
def test_published_flags_are_those_of_the_systems(gaps, seats):
    sarathi, fastserve = gaps[1].systems[1], seats[1].systems[0]

    assert sarathi.served_engine.max_num_batched_tokens == 512
    assert sarathi.served_engine.max_num_seqs == 128
    assert fastserve.served_engine.max_num_seqs == 16
    assert fastserve.candidate is fastserve.published


def test_the_gpus_of_both_kinds_of_settings_are_told(seats):
    for comparison in seats:
        values = comparison_values(comparison)
        row = next(x for x in values["systems"] if x["name"] == "fastserve")
        kinds = {"tuned": 1024, "published": 16}
        for kind, seats_of in kinds.items():
            found = getattr(comparison.systems[0], kind)
            assert found.run.configuration.engine.max_num_seqs == seats_of
            assert row[f"{kind}_gpu_count"] == found.gpu_count


def test_the_setting_that_binds_is_named(gaps, seats):
    fair, published = ({x.name: x for x in each.systems} for each in seats)

    assert published["fastserve"].binding_setting == "max_num_seqs"
    assert fair["fastserve"].binding_setting != "max_num_seqs"
    assert fair["orca"].binding_setting == "max_len"
    assert gaps[1].systems[0].binding_setting == "max_num_batched_tokens"


def test_seats_that_suited_another_gpu_do_not_decide(seats):
    fair, published = (each.systems[0].max_rate_per_s for each in seats)

    assert fair > 1.5 * published


def test_a_tuned_budget_holds_no_lower_rate_than_the_published_one(gaps):
    for fair, published in zip(*(each.systems for each in gaps), strict=True):
        assert (fair.max_rate_per_s or 0) >= (published.max_rate_per_s or 0)


def test_chunked_prompts_of_v0_have_the_default_budget_of_0_4_2():
    plain = PlanSettings(**ASKED)
    chunked = resolve("vllm-v0:chunked=1", plain, 9000, published=True)
    tuned = resolve("vllm-v0:chunked=1", plain, 9000)

    assert chunked.settings.max_num_batched_tokens == 512
    assert (chunked.room_tokens, tuned.room_tokens) == (None, None)
    assert tuned.settings.max_num_batched_tokens is None


def trace_of(tokens, classes=None):
    return Trace(
        np.array(tokens) - 1,
        np.ones(len(tokens), int),
        np.arange(len(tokens)) * 1.0,
        request_class=classes,
        class_names=("chat", "code") if classes is not None else ("all",),
    )


def test_the_single_longest_request_sets_no_room():
    # 1 % may miss; a tenth of it is refused, of 2,000 requests two.
    tokens = [*range(2, 2000), 5000, 90_000]

    assert room_tokens(trace_of(tokens), parse_slo("ttft=1s")) == 1999
    assert room_tokens(trace_of(tokens), parse_slo("ttft=1s", attainment=1.0)) == 90_000


def test_each_class_keeps_room_for_all_but_a_tenth_of_what_it_may_miss():
    classes = np.repeat([0, 1], 200)
    slo = parse_slo(["ttft=1s", "code:ttft=2s"], 0.9)
    trace = trace_of([*range(2, 202), *range(1002, 1202)], classes)

    assert room_tokens(trace, slo) == 1199  # of code, 1 % are longer


def test_what_is_refused_counts_as_missed():
    slo = parse_slo(["ttft=1s", "code:ttft=2s"], 0.9)
    trace = trace_of([10] * 200, np.repeat([0, 1], 100))
    kept = np.arange(200) < 195  # of code, 5 of 100 are refused

    rest = slo_of_rest(slo, trace, kept)

    assert rest.attainment == 0.9
    assert rest.targets["code"] == pytest.approx(0.9 / 0.95)
    with pytest.raises(InputError, match=r"15\.00 % .* of code .*, and 10\.00 % may"):
        slo_of_rest(slo, trace, np.arange(200) < 185)


def test_a_system_that_refuses_the_longest_says_so_and_counts_them(seats):
    orca = seats[0].systems[1]

    assert 0 < orca.refused_share <= 0.001
    assert orca.refused_token_share > orca.refused_share
    assert orca.served.slo_attainment <= 1 - orca.refused_share
    assert "they count as missed" in told(seats[0], "orca")


def test_a_rate_that_is_held_is_never_the_cap_of_the_search():
    held_per_s = highest_rate(lambda rate: rate < 60, 0.5)

    assert 60 / STEP <= held_per_s < 60
    assert highest_rate(lambda rate: True, 0.5) == math.inf


def test_requests_that_arrive_all_at_once_are_compared_without_a_rate(tmp_path):
    for count in (1, 40):
        path = tmp_path / f"{count}.csv"
        rows = ["arrival_s,prompt_tokens,output_tokens", *["0,300,20"] * count]
        path.write_text("\n".join(rows))
        given = {"trace": str(path), "workload": None, "rate": None, "slo": "ttft=1s"}

        found = compare(settings(**given, systems="vllm-v1,orca", replicas=1))

        for row in found.systems:
            assert row.served.slo_attainment == 1
            assert row.max_rate_per_s is None
            assert row.not_served == "all requests arrive at once, which is no rate"


def test_one_request_with_drawn_arrivals_has_their_rate(tmp_path):
    path = tmp_path / "one.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,300,20")
    given = {"trace": str(path), "workload": None, "rate": 5, "arrivals": "poisson"}

    found = compare(settings(**given, systems="vllm-v1,orca", rates=9, replicas=1))

    assert found.systems[0].served.rate_per_s == 5
    assert found.systems[0].max_rate_per_s > 5
    assert [row.rate_per_s for row in found.systems[1].curve] == [9]


def test_settings_of_systems_are_parsed_before_anything_is_read(monkeypatch):
    def never(*_):
        raise AssertionError("the requests were read")

    monkeypatch.setattr(comparing, "requests_of", never)

    with pytest.raises(InputError, match=r"system|scheduler.*max_length"):
        compare(settings(systems="vllm-v1,orca:max_length=9"))


@pytest.mark.slow
def test_the_published_error_of_a_predictor_stands_beside_its_error():
    found = compare(settings(systems="alise", replicas=1))

    text = told(found, "alise")
    assert found.systems[0].published_prediction_error == 0.123
    assert "predictor retrieval off by" in text
    assert "published 12.3 %" in text


@pytest.mark.slow
def test_a_run_in_which_no_prediction_changes_anything_says_so():
    idle = compare(settings(systems="alise,sa", rate=0.5, rates=0.5, replicas=1))

    assert [row.predictions_matter for row in idle.systems] == [False, False]
    assert "true lengths give the same times" in told(idle, "alise")


def test_a_simulation_in_which_no_prediction_changes_anything_says_so():
    given = {**ASKED, "rate": 20, "predictor": "retrieval"}
    del given["as_of"]

    idle = capplan.simulate(**given)
    used = capplan.simulate(**given, scheduler="alise", max_num_seqs=4)

    assert any("change nothing" in text for text in idle.warnings)
    assert not any("change nothing" in text for text in used.warnings)
