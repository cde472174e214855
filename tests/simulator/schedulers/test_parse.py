"""Names and settings of schedulers, and what they refuse."""

from dataclasses import replace

import numpy as np
import pytest
from worked import TABLES, engine, served

from capplan.errors import InputError
from capplan.simulator.checks import without_unsupported
from capplan.simulator.results.sketches import Sketches
from capplan.simulator.schedulers import SCHEDULERS, parse_scheduler
from capplan.simulator.simulate import simulate
from capplan.workload.slo import parse_slo
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

TRACE = Trace([4], [3], [0.0])
OTHERS = sorted(name for name in SCHEDULERS if not name.startswith("vllm-v1"))


@pytest.mark.parametrize("name", sorted(SCHEDULERS))
def test_a_name_alone_has_every_setting_by_default(name):
    policy = parse_scheduler(name)
    parsed, settings = policy.name, policy.settings

    knobs = policy.rules.settings
    again = ",".join(
        f"{key}={knobs[key].written(value)}" for key, value in settings.items()
    )
    assert parsed == name
    assert parse_scheduler(f"{name}:{again}" if again else name) == policy


def test_an_unknown_name_offers_the_nearest():
    with pytest.raises(InputError, match="did you mean vllm-v1"):
        parse_scheduler("vlm-v1")


def test_a_scheduler_without_settings_takes_none():
    with pytest.raises(InputError, match=r"'batch' is not a setting.*it has none"):
        parse_scheduler("vllm-v1:batch=3")


def test_an_unknown_setting_offers_the_nearest():
    with pytest.raises(InputError, match="did you mean max_len"):
        parse_scheduler("orca:maxlen=3")


@pytest.mark.parametrize("text", ["0", "-1", "2.5", "many", ""])
def test_a_setting_that_is_no_whole_number_is_refused(text):
    with pytest.raises(InputError, match=r"max_len is .*expected a number from 1"):
        parse_scheduler(f"orca:max_len={text}")


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        (name, setting)
        for name in OTHERS
        for setting in ("async_scheduling", "prefix_caching")
        if not getattr(parse_scheduler(name).rules, setting)
    ],
)
def test_what_a_scheduler_does_not_have_is_refused_by_name(name, setting):
    asked = engine(**{setting: True})

    with pytest.raises(InputError, match=f"{setting} is True; scheduler {name}"):
        simulate(TRACE, fleet_of(TABLES, asked, 1, scheduler=name))

    other = replace(asked, scheduler=parse_scheduler(name))
    assert not getattr(without_unsupported(other), setting)
    assert getattr(without_unsupported(asked), setting)


@pytest.mark.parametrize("name", OTHERS)
def test_a_stream_is_served_by_the_same_scheduler(name):
    for setting in {"max_len", "s_pf"} & set(parse_scheduler(name).settings):
        name += f":{setting}=16"
    trace = Trace([4, 6, 2], [3, 2, 4], [0.0, 0.005, 0.03])
    asked = {"slo": parse_slo("ttft=1s,tpot=1s,tbt=1s")}
    fleet = fleet_of(TABLES, engine(12), scheduler=name)
    whole = simulate(trace, fleet, **asked)

    found = simulate([trace], fleet, sink=Sketches(**asked), **asked)

    assert found.iteration_count == whole.iteration_count
    assert found.totals == whole.totals
    assert found.busy_s == pytest.approx(whole.busy_s)


def test_iterations_longer_than_the_tables_are_said_to_be_continued():
    trace = Trace(np.full(8, 10), np.ones(8, int), np.zeros(8))

    with pytest.warns(UserWarning, match="80 tokens; its time was extrapolated"):
        times = simulate(
            trace, fleet_of(TABLES, engine(), 1, scheduler="orca:max_len=16")
        ).table

    assert times.finish_s == pytest.approx(np.full(8, 0.090))


def test_a_request_longer_than_its_room_is_refused():
    with pytest.raises(InputError, match="cannot serve 1 requests; the first is row 2"):
        served("orca:max_len=16", [(0, 4, 3), (5, 12, 5)])


def test_room_that_no_replica_has_is_refused():
    with pytest.raises(InputError, match=r"max_len=16 tokens.*holds 12"):
        served("static:max_len=16", [(0, 4, 3)], blocks=3)


def test_a_prompt_above_the_budget_is_refused_where_prompts_are_not_cut():
    with pytest.raises(InputError, match=r"row 1 with 64 prompt and 2 output.*budget"):
        served("vllm-v0", [(0, 64, 2)])

    served("sarathi", [(0, 64, 2)])


@pytest.mark.parametrize("name", ["sarathi", "vllm-v0"])
def test_the_watermark_is_kept_free_at_an_admission(name):
    fits = 4 * 198
    trace = Trace([1], [fits], [0.0])
    given = engine(200, max_num_batched_tokens=1000)
    tables = TABLES.reaching(1000)
    simulate(trace, fleet_of(tables, given, 1, scheduler=name))

    with pytest.raises(InputError, match="leaves 2 of 200 blocks"):
        simulate(
            Trace([1], [fits + 1], [0.0]), fleet_of(tables, given, 1, scheduler=name)
        )
