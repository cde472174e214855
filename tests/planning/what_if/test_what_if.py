"""Each cell of a what-if is the plan with its settings, whatever plans share."""

import numpy as np
import pytest

from capplan.deployment.engine import EngineSettings
from capplan.errors import InputError
from capplan.latency.contract import linear_tables
from capplan.planning.evaluate.known_runs import KnownRuns, digest, sees_slos
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import PlanSettings
from capplan.planning.what_if import what_if as module
from capplan.planning.what_if.settings import WhatIfSettings
from capplan.planning.what_if.variations import VARY, Scenario, varied
from capplan.planning.what_if.what_if import plan_each, what_if
from capplan.simulator.routers import ROUTERS
from capplan.simulator.schedulers import SCHEDULERS
from capplan.simulator.simulate import simulate
from capplan.workload.slo import parse_slo, scaled_slo
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

pytestmark = pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")

ASKED = {
    "workload": "synthetic:prompt=300,output=lognormal(median=80,sigma=0.6),n=1500",
    "rate": 40.0,
    "slo": ("ttft=1s,tpot=20ms",),
    "llm": "Llama-3.1-8B",
    "gpu": "H100-SXM",
    "tp": "1",
    "as_of": "2026-11-24",
}
OWN_TIMES = "synthetic:prompt=300,output=80,n=900,rate=30"
TRACE = Trace(np.full(9, 300), np.full(9, 80), np.arange(9.0), source="nine")


def asked(**more):
    return WhatIfSettings(**{**ASKED, **more})


def answer(best):
    """Count, cost and attainment of a best candidate, and what it is."""
    if best is None:
        return None
    engine, judgement = best.configuration.engine, best.run.judgement
    return (
        (best.gpu, best.tp, best.replica_count, engine.max_num_batched_tokens),
        best.cost and best.cost.usd_per_month,
        judgement.attainment,
        judgement.counted_request_count,
        best.decided,
        best.bound,
    )


@pytest.fixture(scope="module")
def alone():
    """Return what plans the settings of a cell, once for all tests."""
    plans = {}

    def planned(settings):
        asked = settings.model_dump_json()
        if asked not in plans:
            plans[asked] = plan(settings)
        return plans[asked]

    return planned


def assert_as_planned(result, planned):
    for cell in result.cells:
        alone = planned(cell.settings)
        assert cell.status == alone.status, str(cell)
        assert answer(cell.best) == answer(alone.best), str(cell)
        assert cell.reason == (alone.infeasible_reason or ""), str(cell)


@pytest.mark.slow
def test_every_cell_is_what_a_plan_finds_with_its_settings(alone):
    vary = {"rate": "x0.5,x2", "attainment": "0.9,0.99", "slo-scale": "0.45,1.5"}

    result = what_if(asked(gpu="H100-SXM,A100-80GB-SXM", tp="1,2", vary=vary))

    assert len(result.cells) == 8
    assert result.shared_runs > 0
    assert len({answer(cell.best)[0] for cell in result.cells if cell.best}) > 2
    assert_as_planned(result, alone)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "more",
    [
        {"router": "best-fit:theta=0.3", "vary": {"slo-scale": "1,1.5"}},
        {"slo": "tbt=60ms,ttft=1s", "vary": {"slo-scale": "0.8,1"}},
        {"scheduler": "accelgen", "slo": "e2e=3s", "vary": {"slo-scale": "1,1.5"}},
        {"workload": OWN_TIMES, "rate": None, "vary": {"rate": "x0.5,x2"}},
        {"rate": None, "users": 30, "vary": {"users": "20,60"}},
        {"vary": {"llm": "Llama-3.1-8B,Qwen3-8B", "kind": "on-demand,reserved"}},
    ],
    ids=lambda more: next(iter(more)),
)
def test_cells_are_plans_whatever_looks_at_the_limits(more, alone):
    assert_as_planned(what_if(asked(**more)), alone)


@pytest.mark.thorough
@pytest.mark.parametrize("likely", [("H100-SXM", "tp2"), ("A100-80GB-SXM", "tp1")])
def test_a_wrong_guess_at_the_best_changes_no_plan(likely, alone, monkeypatch):
    vary = {"slo-scale": "0.6,1"}
    settings = asked(gpu="H100-SXM,A100-80GB-SXM", tp="1,2", vary=vary)
    monkeypatch.setattr(module._Shared, "_likely", lambda *given: likely)

    assert_as_planned(what_if(settings), alone)


def test_so_many_sessions_at_once_are_varied():
    conversations = {
        **{k: v for k, v in ASKED.items() if k not in ("workload", "rate", "slo")},
        "workload": "chat-turns:n=60",
        "wait_cap": "20s",
        "slo": ("turn:ttft=500ms,tpot=30ms",),
    }
    values = ("50", "600")
    found = what_if(
        WhatIfSettings(**conversations, sessions="50", vary={"sessions": values})
    )

    few, many = (cell.best for cell in found.cells)
    assert few.replica_count < many.replica_count
    assert few.run.sessions.lanes == 50
    with pytest.raises(InputError, match="vary the sessions instead"):
        what_if(
            WhatIfSettings(**conversations, sessions="50", vary={"rate": ("1", "x2")})
        )


def test_a_rate_is_absolute_or_times_the_traffic():
    settings = PlanSettings(**ASKED)
    of = Scenario(settings, TRACE)
    own = Scenario(settings.model_copy(update={"rate": None}), TRACE)

    assert varied(of, {"rate": "x2"}).rate == 80
    assert varied(of, {"rate": "34"}).rate == 34
    # A trace with times of its own keeps its hours.
    assert (varied(own, {"rate": "x2"}).scale, varied(own, {"rate": "x2"}).rate) == (
        2,
        None,
    )
    assert dict(varied(own, {"rate": "x1"})) == dict(own.settings)
    assert varied(own, {"rate": "34"}).rate == 34


@pytest.mark.parametrize(
    ("slo", "times", "scaled"),
    [
        ("ttft=1.5s,tpot=50ms", 0.8, "ttft=1.2s,tpot=0.04s"),
        ("chat:e2e=20s", 1.25, "chat:e2e=25s"),
        ("a:b:jct=1m", 2, "a:b:e2e=120s"),
    ],
)
def test_a_scaled_slo_has_all_its_limits_times_a_number(slo, times, scaled):
    assert scaled_slo(slo, times) == scaled
    parse_slo(scaled)


def test_the_plan_of_a_cell_is_that_of_the_flags_of_plan():
    of = Scenario(PlanSettings(**ASKED), TRACE)

    cell = varied(of, {"rate": "x0.5", "attainment": "0.9", "slo-scale": "2"})

    flags = {"rate": 20, "attainment": "0.9", "slo": "ttft=2s,tpot=0.04s"}
    assert dict(cell) == dict(PlanSettings(**{**ASKED, **flags}))


LIMITED = Trace(
    [5, 5],
    [5, 5],
    [0.0, 1.0],
    request_class=[0, 1],
    class_names=("all", "all/ttft=0.5s"),
    source="own.csv",
)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"rate": "x-1"}, "rate x-1: expected requests/s such as 34, or times"),
        ({"rate": "0"}, "rate 0: expected requests/s"),
        ({"rate": "x0"}, "rate x0: expected"),
        ({"rate": "nan"}, "rate nan: expected"),
        ({"rate": "1e9"}, "rate 1e9: rate is 1000000000.0; expected less than"),
        ({"attainment": "1.5"}, "attainment 1.5: attainment is 1.5; expected less"),
        ({"attainment": "a"}, "attainment a: .*is not a share"),
        ({"slo-scale": "0"}, "slo-scale 0: expected a number above 0"),
        ({"slo-scale": "-1"}, "slo-scale -1: expected a number above 0"),
        ({"slo-scale": "2"}, "slo-scale 2: own.csv has limits of its own"),
        ({"tp": "two"}, "tp two: tp is 'two'; expected a valid integer"),
        ({"kind": "lent"}, "kind lent: "),
    ],
)
def test_a_wrong_value_is_named_in_one_line(values, said):
    with pytest.raises(InputError, match=said) as error:
        varied(Scenario(PlanSettings(**ASKED), LIMITED), values)

    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("vary", "said"),
    [
        ({}, "nothing is varied; give --rate"),
        ({"rate": ""}, "rate has no values"),
        ({"rate": "x1,x1"}, "rate has x1 twice"),
        ({"rat": "x1"}, "rat is not varied; did you mean rate"),
        (["rate"], "'rate' varies nothing; expected NAME=A,B"),
        (["tp=1", "tp=2"], "tp is varied twice"),
        ({"rate": {"a": 1}}, "rate: expected a list"),
        ({"rate": "x1,x2", "scale": "1,2"}, "rate and scale are both varied"),
        ({"llm": "Llama-3.1-8B,Lama-3"}, "Lama-3"),
        (
            {"rate": ",".join(map(str, range(1, 102)))},
            "101 plans; expected at most 100",
        ),
    ],
)
def test_what_cannot_be_varied_is_refused_before_a_plan(vary, said, monkeypatch):
    monkeypatch.setattr(module, "planned", None)

    with pytest.raises(InputError, match=said):
        what_if(asked(vary=vary))


def test_users_have_no_rate():
    users = asked(rate=None, users=50, vary={"rate": "x2"})

    with pytest.raises(InputError, match=r"rate x2: 50 users ask.*--vary users=50,100"):
        what_if(users)


def test_requests_without_times_and_rate_have_no_traffic_to_multiply():
    with pytest.raises(InputError, match="no arrival times, and the scenario no rate"):
        what_if(asked(rate=None, vary={"rate": "x2"}))


def test_a_cell_that_no_gpu_can_run_says_why_and_the_others_are_planned():
    result = what_if(asked(rate=5, vary={"llm": "Llama-3.1-8B,Llama-3.1-70B"}))

    good, bad = result.cells
    assert (good.status, bad.status) == ("feasible", "refused")
    assert "does not fit on H100-SXM" in bad.reason


def test_ctrl_c_keeps_the_plans_that_are_done(monkeypatch):
    pressed = []
    settings = asked(rate=5, vary={"attainment": "0.9,0.95,0.99"})
    planned = module._Shared.planned

    def then_press(*given):
        cell = planned(*given)
        pressed.append(True)
        return cell

    monkeypatch.setattr(module._Shared, "planned", then_press)

    result = what_if(settings, stopped=lambda: bool(pressed))

    assert result.interrupted
    assert [cell.status for cell in result.cells] == [
        "feasible",
        "interrupted",
        "interrupted",
    ]
    assert answer(result.cells[0].best) == answer(plan(result.cells[0].settings).best)
    assert result.cells[1].reason == "not planned before Ctrl-C"


def test_progress_names_the_cell_and_what_share_is_done():
    seen = []

    def progress(step, share=None):
        seen.append((step, share))

    what_if(asked(rate=5, vary={"attainment": "0.9,0.95"}), progress)

    steps, shares = zip(*seen[1:], strict=True)
    assert steps[0].startswith("attainment 0.9 (1 of 2): ")
    assert steps[-1].startswith("attainment 0.95 (2 of 2): ")
    assert list(shares) == sorted(shares)
    assert 0 <= shares[0] < 0.5 <= shares[-1] < 1


def test_several_llms_are_planned_whole_with_the_same_requests():
    settings = PlanSettings(**{**ASKED, "rate": 5, "llm": ["Llama-3.1-8B", "Qwen3-8B"]})

    result = plan_each(settings)

    assert [cell.llm for cell in result.cells] == ["Llama-3.1-8B", "Qwen3-8B"]
    for cell in result.cells:
        alone = plan(PlanSettings(**{**ASKED, "rate": 5, "llm": cell.llm}))
        assert answer(cell.best) == answer(alone.best)
        assert cell.plan.certificate == alone.certificate
    requests = {cell.plan.request_count for cell in result.cells}
    assert len(requests) == 1
    assert all(cell.usd_per_request > 0 for cell in result.cells)


def test_dollars_per_request_are_those_of_an_hour_over_its_requests():
    (cell,) = what_if(asked(rate=5, vary={"llm": "Llama-3.1-8B"})).cells

    rate_per_s = cell.best.run.simulation.totals.rate_per_s
    assert cell.usd_per_request * 3600 * rate_per_s == pytest.approx(
        cell.best.cost.usd_per_h
    )


# What is shared.


def many(n=400, rate_per_s=30.0, seed=0, **columns):
    rng = np.random.default_rng(seed)
    arrival_s = np.cumsum(rng.exponential(1 / rate_per_s, n))
    return Trace(
        rng.integers(20, 600, n),
        rng.integers(2, 60, n),
        arrival_s,
        session=rng.integers(0, 40, n),
        prefix_group=rng.integers(0, 9, n),
        prefix_tokens=np.full(n, 16),
        **columns,
    )


TABLES = linear_tables(2e-3, 1e-5, 0, 2e-5, 0, max_batch=64, max_tokens=2048)
ENGINE = EngineSettings(
    max_num_batched_tokens=2048,
    max_num_seqs=64,
    kv_blocks=2000,
    host_kv_gib=40.0,
    kv_block_bytes=2**16,
    async_scheduling=False,
)


def deployment(replica_count, router="jsq", scheduler=None):
    return fleet_of(TABLES, ENGINE, replica_count, router=router, scheduler=scheduler)


SLOS = [parse_slo("ttft=50ms,tpot=9ms,e2e=1s"), parse_slo("ttft=5s,tpot=90ms,e2e=90s")]


@pytest.mark.parametrize("router", sorted(ROUTERS))
def test_what_is_said_not_to_see_an_slo_does_not(router):
    fleet = deployment(3, router=router)
    trace = many()

    tables = [simulate(trace, fleet, slo=slo).table for slo in SLOS]

    if not sees_slos(fleet, SLOS[0], trace.class_names):
        assert np.array_equal(tables[0].finish_s, tables[1].finish_s)
        assert np.array_equal(tables[0].first_token_s, tables[1].first_token_s)


@pytest.mark.thorough
@pytest.mark.parametrize("scheduler", sorted(SCHEDULERS))
def test_schedulers_said_not_to_see_an_slo_do_not(scheduler):
    fleet = deployment(2, scheduler=scheduler)
    trace = many()

    tables = [simulate(trace, fleet, slo=slo).table for slo in SLOS]

    if not sees_slos(fleet, SLOS[0], trace.class_names):
        assert np.array_equal(tables[0].finish_s, tables[1].finish_s)


def test_what_sees_an_slo_is_simulated_for_each():
    names = ("all",)

    assert not sees_slos(deployment(2), SLOS[0], names)
    assert sees_slos(deployment(2), parse_slo("tbt=50ms"), names)
    assert sees_slos(deployment(2, router="best-fit:theta=0.5"), SLOS[0], names)
    assert sees_slos(deployment(2, scheduler="accelgen"), SLOS[0], names)


def known(runs, trace, fleet, slo=SLOS[0], seed=0):
    return runs(trace, fleet, slo=slo, seed=seed, stopped=None)


def test_a_simulation_is_known_again_by_its_requests_and_its_fleet():
    runs, trace, fleet = KnownRuns(), many(), deployment(2)

    first = known(runs, trace, fleet)
    again = known(runs, many(), fleet.with_replicas(2), SLOS[1])
    plain = simulate(trace, fleet, slo=SLOS[0], seed=0)

    assert again is first
    assert runs.found == 1
    for name, column in vars(plain.table).items():
        assert np.array_equal(column, getattr(first.table, name), equal_nan=True)


def test_a_simulation_as_long_as_those_that_decide_a_last_count_is_known_again():
    runs, trace, fleet = KnownRuns(), many(185_000), deployment(2)

    assert known(runs, trace, fleet) is known(runs, trace, fleet)


@pytest.mark.parametrize(
    "other",
    [
        {"trace": many(seed=1)},
        {"trace": many(399)},
        {"trace": many(priority=np.arange(400))},
        {"fleet": deployment(3)},
        {"fleet": deployment(2, router="round-robin")},
        {"seed": 1},
        {"slo": parse_slo("tbt=50ms")},
    ],
    ids=lambda other: next(iter(other)),
)
def test_another_simulation_is_not_taken_for_a_known_one(other):
    runs, shared = KnownRuns(), {"trace": many(), "fleet": deployment(2)}
    first = known(runs, **shared)

    second = known(runs, **{**shared, **other})

    assert runs.found == 0
    assert second is not first


def test_more_requests_that_are_all_alike_are_others():
    few, more = (Trace([9] * n, [9] * n, [0.0] * n) for n in (3, 5))

    assert digest(few) != digest(more)


def test_the_oldest_is_forgotten_where_memory_is_short():
    fleet = deployment(2)
    one = known(KnownRuns(), many(), fleet)
    size = sum(c.nbytes for c in vars(one.table).values() if c.strides != (0,))
    runs = KnownRuns(int(2.5 * size))

    for seed in (0, 1, 2):
        known(runs, many(seed=seed), fleet)
    for seed in (1, 2):
        known(runs, many(seed=seed), fleet)
    assert runs.found == 2
    known(runs, many(seed=0), fleet)

    assert runs.found == 2


def test_other_settings_are_varied_by_their_names():
    assert {"rate", "attainment", "slo-scale", "llm", "gpu", "kind"} <= {*VARY}


def test_what_differs_in_money_alone_is_simulated_once(monkeypatch):
    done = []

    def noted(trace, deployment, **options):
        done.append(len(trace))
        return simulate(trace, deployment, **options)

    for place in ("known_runs", "saturation"):
        monkeypatch.setattr(f"capplan.planning.evaluate.{place}.simulate", noted)

    once = what_if(asked(vary={"provider": ["RunPod"]}))
    of_one = sorted(done)
    done.clear()
    both = what_if(asked(vary={"provider": ["RunPod", "Azure"]}))

    assert sorted(done) == of_one
    assert answer(once.cells[0].best) == answer(both.cells[0].best)
    first, second = (cell.best.cost.usd_per_month for cell in both.cells)
    assert first != second
