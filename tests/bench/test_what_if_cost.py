"""Processor time of a what-if over that of one plan of the shipped example."""

import time
from pathlib import Path

import pytest

from capplan.cli.scenario import read_scenario
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import PlanSettings
from capplan.planning.what_if.settings import WhatIfSettings
from capplan.planning.what_if.what_if import what_if

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "plan_sharegpt.yaml"


def processor_s(work):
    began_s = time.process_time()
    result = work()
    return result, time.process_time() - began_s


@pytest.mark.bench
@pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")
@pytest.mark.parametrize("attainment", ["0.95,0.99", "0.99,0.999"])
def test_three_rates_two_targets_and_two_limits(attainment):
    given = read_scenario(PlanSettings, EXAMPLE)
    vary = {"rate": "x0.5,x1,x2", "attainment": attainment, "slo-scale": "1,1.25"}
    plan(PlanSettings(**{**given, "rate": 5}))  # loads what is compiled

    _, once_s = processor_s(lambda: plan(PlanSettings(**given)))
    result, all_s = processor_s(lambda: what_if(WhatIfSettings(**given, vary=vary)))
    each_s = [processor_s(lambda s=cell.settings: plan(s))[1] for cell in result.cells]

    print(
        f"\n{len(each_s)} cells, attainment {attainment}: {all_s:.1f} s of processor "
        f"time, {all_s / once_s:.1f} times the plan of the example ({once_s:.1f} s), "
        f"{all_s / sum(each_s):.2f} of the cells one by one ({sum(each_s):.1f} s); "
        f"{result.shared_runs} simulations shared"
    )
    assert all(cell.best is not None for cell in result.cells)
