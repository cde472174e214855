"""A scenario says the same as the flags; flags win; errors name the line."""

import pytest

from capplan.cli.scenario import settings_from
from capplan.errors import InputError
from capplan.planning.settings import PlanSettings, SimulateSettings


@pytest.fixture
def scenario(tmp_path):
    def write(text):
        path = tmp_path / "scenario.yaml"
        path.write_text(text)
        return path

    return write


def test_a_scenario_says_the_same_as_flags(scenario):
    path = scenario(
        "workload: sharegpt\nrate: 20\nllm: Llama-3.1-8B\ngpu: [A, B]\ntp: [1, 2]\n"
        "slo: {ttft: 1s, tpot: 30ms, chat: {ttft: 2s}}\nprice: {A: 2.49}\n"
        "max-num-seqs: 256\nasync-scheduling: false\n"
        "latency_ms: [7, 0.01, 0, 0.02, 0]\n"
    )
    flags = {
        "workload": "sharegpt",
        "rate": 20.0,
        "llm": "Llama-3.1-8B",
        "gpu": "A,B",
        "tp": "1,2",
        "slo": ["ttft=1s,tpot=30ms", "chat:ttft=2s"],
        "price": ["A=2.49"],
        "max_num_seqs": 256,
        "async_scheduling": False,
        "latency_ms": "7,0.01,0,0.02,0",
    }

    from_file = settings_from(PlanSettings, path, {})

    assert from_file == settings_from(PlanSettings, None, flags)


def test_flags_override_the_scenario_and_absent_ones_do_not(scenario):
    path = scenario("rate: 20\nseed: 3\nslo: ttft=1s\n")

    request = settings_from(
        PlanSettings, path, {"rate": 40.0, "seed": None, "slo": ["ttft=2s"]}
    )

    assert (request.rate, request.seed, request.slo) == (40.0, 3, ("ttft=2s",))


def test_a_trace_given_by_flag_takes_the_place_of_the_workload(scenario):
    path = scenario("workload: sharegpt\n")

    request = settings_from(PlanSettings, path, {"trace": "own.csv"})

    assert (request.trace, request.workload) == ("own.csv", None)


def test_paths_are_taken_from_where_the_scenario_lies(scenario, tmp_path):
    (tmp_path / "own.csv").write_text("")
    path = scenario("trace: own.csv\nprices: elsewhere.csv\n")

    request = settings_from(PlanSettings, path, {})

    assert request.trace == str(tmp_path / "own.csv")
    assert request.prices == "elsewhere.csv"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("llm: x\nrat: 3\n", r":2: rat is not a setting; did you mean rate\?"),
        ("rate: 20\nreplicas: 3\n", ":2: replicas is not a setting"),
        ("llm: x\n\nrate: 0\n", ":3: rate is 0; expected greater than 0"),
        ("rate: .nan\n", ":1: rate is nan; expected a finite number"),
        ("rate: 1\nrate: 2\n", ":2: rate is already set in line 1"),
        ("- rate\n", "expected settings as in `rate: 20`"),
        ("", "expected settings as in `rate: 20`"),
        ("rate: [1\n", ":2: not YAML"),
        ("llm: !!python/object:os.system x\n", "not YAML: could not determine"),
        ("trace: a\nworkload: b\n", ":2: trace and workload are both given"),
    ],
)
def test_a_wrong_scenario_is_refused_with_its_line(scenario, text, expected):
    with pytest.raises(InputError, match=expected) as refused:
        settings_from(PlanSettings, scenario(text), {})

    assert str(refused.value).startswith(str(scenario(text)))


def test_simulate_takes_the_settings_of_plan_and_its_own(scenario):
    request = settings_from(SimulateSettings, scenario("rate: 20\nreplicas: 3\n"), {})

    assert (request.rate, request.replicas) == (20.0, 3)
