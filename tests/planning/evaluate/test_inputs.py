"""Inputs shared by all candidates: routers, solver, SLO and configurations."""

import pytest

from capplan.deployment.configuration import Configuration
from capplan.errors import InputError
from capplan.planning.configure.excluded import Excluded
from capplan.planning.evaluate.inputs import configuration_of, plan_inputs
from capplan.planning.prove.proof import bound_inputs
from capplan.planning.settings.plan import PlanSettings

SETTINGS = {
    "workload": "synthetic:prompt=100,output=20,n=1200",
    "rate": 20.0,
    "llm": "Llama-3.1-8B",
    "gpu": ("H100-SXM",),
    "tp": (1,),
    "slo": "ttft=1s,tpot=50ms",
}
MARGINS = tuple(f"best-fit:theta={theta}" for theta in (0.5, 0.4, 0.3, 0.2))


def inputs_of(**changes):
    return plan_inputs(PlanSettings(**{**SETTINGS, **changes}))


@pytest.mark.parametrize(
    ("changes", "routers", "solver"),
    [
        ({}, ("jsq",), None),
        ({"solver": "simulated"}, ("jsq",), None),
        ({"router": "round-robin"}, ("round-robin",), None),
        ({"router": "best-fit"}, MARGINS, None),
        ({"router": "best-fit:theta=0.7"}, ("best-fit:theta=0.7",), None),
        ({"solver": "mip", "router": "jsq"}, ("jsq",), "cp-sat"),
        ({"solver": "highs", "router": "jsq"}, ("jsq",), "highs"),
    ],
)
def test_routers_and_solver_follow_from_the_settings(changes, routers, solver):
    inputs, _ = inputs_of(**changes)

    assert (inputs.routers, inputs.solver) == (routers, solver)


def test_a_solver_alone_tries_several_routers():
    inputs, _ = inputs_of(solver="mip")

    assert inputs.routers[0] == "jsq"
    assert len(inputs.routers) > 2


@pytest.mark.parametrize("router", ["jsq", "best-fit:theta=0.4"])
def test_a_router_is_no_solver(router):
    with pytest.raises(InputError, match=f"it is a router: give --router {router}"):
        inputs_of(solver=router)


def test_a_plan_needs_an_slo():
    with pytest.raises(InputError, match="no SLO"):
        inputs_of(slo=())


def test_a_llm_that_fits_nowhere_is_refused_with_every_reason():
    with pytest.raises(InputError, match=r"at TP 1: .*; .*at TP 2: "):
        inputs_of(llm="Llama-3.1-405B", tp=(1, 2))


def test_the_same_seed_draws_the_same_requests():
    first, _ = inputs_of(seed=3)
    second, _ = inputs_of(seed=3)
    other, _ = inputs_of(seed=4)

    assert first.trace.arrival_s.tolist() == second.trace.arrival_s.tolist()
    assert first.trace.arrival_s.tolist() != other.trace.arrival_s.tolist()


def test_a_configuration_is_found_by_gpu_and_layout():
    _, tried = inputs_of(llm="Llama-3.1-70B", tp=(1, 4))

    assert isinstance(tried[0], Excluded)
    assert isinstance(configuration_of(tried, ("H100-SXM", "tp4")), Configuration)
    with pytest.raises(InputError, match="H100-SXM, tp1: not among"):
        configuration_of(tried, ("H100-SXM", "tp1"))


@pytest.mark.parametrize(
    ("slo", "tpot_s"),
    [("ttft=1s,tpot=50ms,tbt=1s", 0.05), ("ttft=1s,tpot=50ms,tbt=30ms", 0.03)],
)
def test_the_bound_holds_the_mean_gap_to_the_limit_of_the_longest(slo, tpot_s):
    inputs, configurations = inputs_of(slo=slo)

    columns = bound_inputs(inputs, configurations[0]).columns

    assert set(columns["tpot_s"]) == {tpot_s}
