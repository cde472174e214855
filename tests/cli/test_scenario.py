"""A scenario says the same as the flags; flags win; errors name the line."""

import pytest

import capplan
from capplan.cli.main import exit_code
from capplan.cli.scenario import settings_from
from capplan.errors import CapplanWarning, InputError
from capplan.planning.backtest.settings import BacktestSettings
from capplan.planning.settings.plan import (
    DemandSettings,
    PlanSettings,
    SearchSettings,
    SimulateSettings,
)


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


@pytest.mark.parametrize("closed", [True, False])
def test_a_nest_too_deep_is_refused(scenario, closed):
    path = scenario("slo: " + "[" * 100_000 + "]" * 100_000 * closed)

    with pytest.raises(InputError, match=r"scenario\.yaml: nested too deeply"):
        settings_from(PlanSettings, path, {})


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
        ("rate: 20\nreplicas: 3\n", ":2: replicas has no effect on this command"),
        ("llm: x\n\nrate: 0\n", ":3: rate is 0; expected greater than 0"),
        ("rate: .nan\n", ":1: rate is nan; expected a finite number"),
        ("rate: 1\nrate: 2\n", ":2: rate is already set in line 1"),
        ("- rate\n", "expected settings as in `rate: 20`"),
        ("", "expected settings as in `rate: 20`"),
        ("rate: [1\n", ":2: not YAML"),
        ("llm: !!python/object:os.system x\n", "not YAML: could not determine"),
        ("llm: x\nrate: yes\n", ":2: rate is True; expected no True or False"),
        ("tp: [1, on]\n", r":1: tp is \[1, True\]; expected no True"),
        ("trace: yes\n", ":1: trace is True; expected no True"),
        ("attainment: {chat: no}\n", ":1: attainment is .*; expected no True"),
        ("llm: x\nslo: {ttft: 1}\n", ":2: .*ttft: '1' is not a duration"),
        ("llm: x\nslo: {chat: {tpot: 1}}\n", ":2: .*'chat:tpot=1': tpot: '1' is no"),
        ("llm: x\nwarm_up: 600\n", ":2: warm_up: '600' is not a duration; expected"),
        ("tokenizer: no.json\n", ":1: tokenizer: no.json: no such file"),
        ("reader: parquet\n", ":1: reader: unknown trace format 'parquet'; expected"),
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


UNREAD = [
    ("simulate", SimulateSettings, "solver", "mip"),
    ("simulate", SimulateSettings, "tune", "true"),
    ("search", SearchSettings, "router", "jsq"),
    ("demand", DemandSettings, "rate", "20"),
]


@pytest.mark.parametrize(
    ("command", "model", "name", "value"),
    [row for row in UNREAD if row[0] != "search"],
)
def test_a_setting_that_the_command_does_not_read_is_refused_with_its_line(
    scenario, capsys, command, model, name, value
):
    path = scenario(f"llm: x\n{name}: {value}\n")

    code = exit_code([command, str(path)])

    assert code == 2
    assert capsys.readouterr().err == (
        f"capplan: error: {path}:2: {name} has no effect on this command; "
        "leave it out\n"
    )


def test_a_scenario_of_a_plan_serves_a_search_which_says_what_it_leaves_out(scenario):
    path = scenario("llm: x\nrouter: jsq\n")

    with pytest.warns(CapplanWarning, match=":2: router has no effect on this command"):
        given = settings_from(SearchSettings, path, {})

    assert given.llm == "x"


@pytest.mark.parametrize(("command", "model", "name", "value"), UNREAD)
def test_a_setting_that_the_command_does_not_read_is_no_flag(
    capsys, command, model, name, value
):
    code = exit_code([command, f"--{name}", value])

    shown = capsys.readouterr().err
    assert code == 2
    assert shown.startswith(f"capplan: error: No such option: --{name}")
    assert shown.count("\n") == 1


@pytest.mark.parametrize(("command", "model", "name", "value"), UNREAD)
def test_a_setting_that_the_command_does_not_read_is_refused_in_python(
    command, model, name, value
):
    with pytest.raises(InputError, match=f"^{name} has no effect on this command"):
        getattr(capplan, command)(**{name: value})


def test_a_wrong_flag_is_named_as_a_flag_and_a_wrong_key_by_its_line(scenario):
    path = scenario("llm: x\nmax-num-seqs: 0\n")

    with pytest.raises(InputError, match=r"^--attainment: attainment is 2"):
        settings_from(PlanSettings, None, {"attainment": 2})
    with pytest.raises(InputError, match=r":2: max_num_seqs is 0; expected"):
        settings_from(PlanSettings, path, {"attainment": 2})


def test_a_flag_does_not_repair_a_wrong_scenario(scenario):
    with pytest.raises(InputError, match=":1: rate is 0"):
        settings_from(PlanSettings, scenario("rate: 0\n"), {"rate": 20.0})


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b"llm: \xff\n", "not UTF-8 text at byte 5"), (None, "no such file")],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path, content, expected):
    path = tmp_path / "scenario.yaml"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(InputError, match=expected):
        settings_from(PlanSettings, path, {})


@pytest.mark.parametrize("command", ["plan", "simulate", "demand", "compare"])
def test_a_plan_is_no_scenario_of_a_command_that_takes_none(command, tmp_path, capsys):
    planned = tmp_path / "plan.json"
    planned.write_text('{"schema": "capplan.plan/12", "settings": {"rate": 5}}')

    assert exit_code([command, str(planned)]) == 2

    assert "plan.json:1: schema is not a setting" in capsys.readouterr().err


def test_traffic_of_a_scenario_is_left_out_silently_where_a_fleet_has_its_own(
    tmp_path, recwarn
):
    path = tmp_path / "scenario.yaml"
    path.write_text("rate: 20\nworkload: sharegpt\nllm: Llama-3.1-8B\nhand_off: nixl\n")

    settings = settings_from(BacktestSettings, path, {})

    assert settings.llm == "Llama-3.1-8B"
    (told,) = [str(warning.message) for warning in recwarn]
    assert told.endswith(":4: hand_off has no effect on this command")
