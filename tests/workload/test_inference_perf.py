"""A config of inference-perf is drawn as the tool draws it."""

import re

import numpy as np
import pytest
import yaml

from capplan.errors import InputError, TraceWarning
from capplan.workload.arrivals import no_times
from capplan.workload.catalog import open_workload
from capplan.workload.readers import read_trace

LENGTHS = {"min": 20, "max": 400, "mean": 120, "std_dev": 30}
STAGES = [{"rate": 2, "duration": 100}, {"rate": 5.5, "duration": 61}]


@pytest.fixture
def config(tmp_path):
    def write(data=None, load=None, **others):
        path = tmp_path / "config.yml"
        data = data or {
            "type": "random",
            "input_distribution": LENGTHS,
            "output_distribution": LENGTHS | {"mean": 60, "total_count": 50},
        }
        load = load or {"type": "poisson", "interval": 10, "stages": STAGES}
        content = {"data": data, "load": load, "server": {"type": "vllm"}} | others
        path.write_text(yaml.safe_dump(content))
        return path

    return write


def of_lengths(lengths, kind="random", n=20_000):
    """Return data and load that draw n prompts of these lengths."""
    data = {
        "type": kind,
        "input_distribution": lengths,
        "output_distribution": LENGTHS,
        "shared_prefix": {
            "num_groups": 1,
            "num_prompts_per_group": n,
            "system_prompt_len": 1,
            "question_len": lengths,
        },
    }
    if kind != "shared_prefix":
        del data["shared_prefix"]
    else:
        del data["input_distribution"], data["output_distribution"]
    return {"data": data, "load": {"stages": [{"rate": n / 100, "duration": 100}]}}


def test_stated_rates_become_arrivals_over_the_stages(config):
    trace = open_workload(config())

    first = trace.arrival_s < 100
    assert len(trace) == 200 + int(5.5 * 61)
    # 4 standard deviations of a Poisson count.
    assert abs(first.sum() - 200) < 4 * 200**0.5
    assert not ((trace.arrival_s > 145) & (trace.arrival_s < 110)).any()


def test_a_constant_load_has_its_requests_within_each_stage(config):
    load = {"type": "constant", "interval": 10, "stages": STAGES}

    trace = open_workload(config(load=load))

    first = trace.arrival_s < 100
    later = (trace.arrival_s >= 110) & (trace.arrival_s < 171)
    assert (first.sum(), later.sum(), len(trace)) == (200, 335, 535)
    gaps_s = np.diff(trace.arrival_s[first])
    assert 0.8 < gaps_s.std() / gaps_s.mean() < 1.2  # the tool's gaps are exponential


@pytest.mark.parametrize(
    ("lengths", "mean", "deviation"),
    [
        ({"min": 1, "max": 9_000, "mean": 500, "std_dev": 60}, 500, 60),
        ({"min": 1, "max": 9_000, "mean": 500, "std_dev": 0, "variance": 400}, 500, 20),
        ({"min": 100, "max": 300, "type": "uniform"}, 200, 200 / 12**0.5),
        ({"type": "fixed", "mean": 77.9}, 77, 0),
        # Lognormal above min: mean and deviation of the whole are as given too.
        (
            {"type": "lognormal", "min": 50, "max": 10**6, "mean": 300, "std_dev": 90},
            300,
            90,
        ),
    ],
)
def test_lengths_have_the_mean_and_the_deviation_of_the_config(
    config, lengths, mean, deviation
):
    trace = open_workload(config(**of_lengths(lengths)))

    drawn = trace.prompt_tokens
    assert abs(drawn.mean() - mean) <= 4 * deviation / len(trace) ** 0.5
    assert abs(drawn.std() - deviation) <= 0.05 * deviation
    assert drawn.min() >= lengths.get("min", 10)


@pytest.mark.parametrize(
    ("lengths", "mean", "deviation"),
    [
        (
            {"type": "lognormal", "min": 1, "max": 10**6, "mean": 300, "std_dev": 90},
            300,
            90,
        ),
        ({"type": "poisson", "min": 1, "max": 10**6, "mean": 300}, 300, 300**0.5),
        # Azzalini 1985: location and scale are given, delta is 3 / sqrt(10).
        (
            {
                "type": "skew_normal",
                "min": 1,
                "max": 10**6,
                "mean": 300,
                "std_dev": 50,
                "skew": 3,
            },
            300 + 50 * (3 / 10**0.5) * (2 / np.pi) ** 0.5,
            50 * (1 - 2 * 0.9 / np.pi) ** 0.5,
        ),
        (250, 250, 0),
    ],
)
def test_lengths_of_questions_are_those_of_a_shared_prefix(
    config, lengths, mean, deviation
):
    trace = open_workload(config(**of_lengths(lengths, "shared_prefix")))

    drawn = trace.prompt_tokens - 1  # the system prompt
    assert abs(drawn.mean() - mean) <= 4 * deviation / len(trace) ** 0.5
    assert abs(drawn.std() - deviation) <= 0.05 * deviation


def test_prompts_of_a_group_share_its_system_prompt(config):
    shape = {
        "num_unique_system_prompts": 3,
        "num_users_per_system_prompt": 4,
        "system_prompt_len": {"type": "uniform", "min": 100, "max": 900},
        "question_len": 7,
        "output_len": 9,
    }
    load = {"stages": [{"rate": 12, "duration": 2}]}

    with pytest.warns(TraceWarning, match="12 prompts come again"):
        trace = open_workload(
            config({"type": "shared_prefix", "shared_prefix": shape}, load)
        )

    assert np.bincount(trace.prefix_group).tolist() == [8, 8, 8]
    for group in range(3):
        assert len(set(trace.prefix_tokens[trace.prefix_group == group])) == 1
    assert (trace.prompt_tokens - trace.prefix_tokens == 7).all()
    assert (trace.output_tokens == 9).all()
    np.testing.assert_array_equal(trace.prompt_tokens[:12], trace.prompt_tokens[12:])


@pytest.mark.parametrize(
    ("load", "n", "said"),
    [
        ({"sweep": {"type": "linear"}}, 10_000, "give --rate"),
        (
            {
                "type": "concurrent",
                "stages": [
                    {"num_requests": 30, "concurrency_level": 6},
                    {"num_requests": 40, "concurrency_level": 12},
                ],
            },
            70,
            "load.stages have 6, 12 users: give --users with one of them",
        ),
    ],
)
def test_a_load_without_rates_has_no_times_and_says_what_to_give(config, load, n, said):
    with pytest.warns(TraceWarning, match=re.escape(said)):
        trace = open_workload(config(load=load))

    assert len(trace) == n
    assert trace.arrival_s is None
    assert said in no_times(trace)


def test_a_config_given_as_a_trace_is_told_where_it_goes(tmp_path):
    path = tmp_path / "config.yml"
    path.write_text("load:\n  type: constant\ndata:\n  type: random\n")

    with pytest.raises(InputError, match="this is a config, for --workload"):
        read_trace(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"data": {"type": "shareGPT"}}, "data.type 'shareGPT' is not modelled"),
        ({"data": {"type": "shareGPT"}}, "; a file of requests goes to --trace"),
        (
            {"data": {"type": "random", "multimodal": {"image": {}}}},
            "data.multimodal is not modelled",
        ),
        (
            {
                "data": {
                    "type": "shared_prefix",
                    "shared_prefix": {"enable_multi_turn_chat": True},
                }
            },
            "data.shared_prefix.enable_multi_turn_chat is not modelled",
        ),
        ({"load": {"type": "trace_replay"}}, "load.type 'trace_replay' is not"),
        (
            {"load": {"lora_traffic_split": [{"name": "a", "split": 1.0}]}},
            "load.lora_traffic_split is not modelled",
        ),
        ({"load": {"stages": [{"rate": -1, "duration": 3}]}}, "stages.0.rate is -1"),
        ({"load": {"stages": [{"rate": 1}]}}, "stages.0.duration is None"),
        ({"load": {"stages": []}}, "have 0 requests; expected 1 to"),
        ({"load": {"stages": [{"rate": 1e5, "duration": 10**6}]}}, "100,000,000,000"),
        (
            {"data": {"type": "random", "input_distribution": {"max": 100}}},
            "input_distribution has min 10, mean 512 and max 100; expected them to",
        ),
        ({"data": {"type": "random"}}, "data.input_distribution is no mapping"),
        (
            {"data": {"type": "random", "input_distribution": {"median": 5}}},
            "input_distribution.median is not modelled",
        ),
    ],
)
def test_what_is_not_modelled_or_wrong_is_refused_by_its_key(config, change, said):
    with pytest.raises(InputError, match=re.escape(said)):
        open_workload(config(**change))


def test_the_same_seed_draws_the_same_requests(config):
    one, same, other = (open_workload(config(), seed=seed) for seed in (1, 1, 2))

    np.testing.assert_array_equal(one.prompt_tokens, same.prompt_tokens)
    np.testing.assert_array_equal(one.arrival_s, same.arrival_s)
    assert (one.prompt_tokens != other.prompt_tokens).any()
