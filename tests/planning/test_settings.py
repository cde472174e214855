"""A request checks itself; its fields are the names that people script against."""

import pytest

from capplan.errors import InputError
from capplan.planning.compare.settings import CompareSettings
from capplan.planning.settings.plan import PlanSettings, SimulateSettings

NAMES = (
    "trace workload rate llm gpu tp slo attainment out max_num_batched_tokens "
    "max_num_seqs block_size kv_blocks async_scheduling prefix_caching "
    "shared_prefix latency_ms arrivals price prices sharegpt_rule salvage "
    "drop_oversized router solver reader tokenizer seed latency_quantile "
    "engine_overhead kv_cache_dtype"
)


@pytest.mark.parametrize(
    ("model", "given", "why"),
    [
        (CompareSettings, {"users": 10, "rates": (1,)}, "are both given"),
        (PlanSettings, {"acceptance_rates": (1,)}, "is given; expected"),
        (PlanSettings, {"latency_ms": (1,) * 5, "engine_overhead": "1"}, "both given"),
    ],
)
def test_a_list_of_ones_is_given_as_any_other_is(model, given, why):
    with pytest.raises(InputError, match=why):
        model(**given)


def test_the_names_that_others_script_against_are_settings():
    assert set(NAMES.split()) <= set(PlanSettings.model_fields)
    assert {"replicas", "record_iterations"} <= set(SimulateSettings.model_fields)


def test_lists_may_be_texts_with_commas():
    request = PlanSettings(gpu="H100-SXM, A100", tp="1,2", price="H100-SXM=$2.49/h,B=1")

    assert request.gpu == ("H100-SXM", "A100")
    assert request.tp == (1, 2)
    assert request.price == {"H100-SXM": "$2.49/h", "B": "1"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"gpus": "A"}, r"gpus is not a setting; did you mean gpu\?"),
        ({"rate": -1}, "rate is -1; expected greater than 0"),
        ({"attainment": 1.5}, "attainment is 1.5; expected less than or equal to 1"),
        ({"rate": float("inf")}, "rate is inf; expected a finite number"),
        ({"kv_blocks": 1}, "kv_blocks is 1; expected greater than or equal to 2"),
        ({"seed": -1}, "seed is -1"),
        ({"rate": True}, "rate is True; expected no True or False"),
        ({"slo": "ttft=1"}, "ttft: '1' is not a duration; expected a number and"),
        ({"slo": "ttfb=1s"}, "slo: 'ttfb=1s': 'ttfb=1s' is not a limit; expected"),
        ({"warm_up": "-1s"}, "warm_up: '-1s' is negative; expected a time >= 0"),
        ({"warm_up": 600}, "warm_up: '600' is not a duration; expected"),
        ({"latency_quantile": 1}, "latency_quantile is 1; expected less than or equ"),
        (
            {"reader": "parquet"},
            "reader: unknown trace format 'parquet'; expected one of weka, dynamo",
        ),
        (
            {"sharegpt_rule": "all"},
            "sharegpt_rule: 'all' is no rule for Share.*one of first",
        ),
        ({"tokenizer": "no.json"}, "tokenizer: no.json: no such file; expected a"),
        ({"trace": "a", "workload": "b"}, "both given"),
    ],
)
def test_what_cannot_be_asked_is_refused(settings, expected):
    with pytest.raises(InputError, match=expected):
        PlanSettings(**settings)


def test_more_replicas_than_fit_into_memory_are_refused():
    with pytest.raises(InputError, match="replicas is 1000000000; expected less than"):
        SimulateSettings(replicas=1_000_000_000)


def test_a_request_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        PlanSettings().rate = 3
