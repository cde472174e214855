"""Small real plans, one of each kind, and a small run."""

from pathlib import Path

import numpy as np
import pytest

from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.run import Run, simulate_deployment
from capplan.planning.plan.plan import plan as planned
from capplan.planning.plan.result import Plan
from capplan.planning.settings.plan import PlanSettings, SimulateSettings

REQUESTS = 3000
SECONDS = 40


@pytest.fixture(scope="session")
def settings(tmp_path_factory) -> dict:
    """3,000 requests within 40 s for four GPU types.

    H100-SXM serves them with 3 GPUs, H200-SXM does too for more money, A100s are
    pruned by their bound, and on an L4 the TPOT of one request is too long.
    """
    rng = np.random.default_rng(1)
    columns = (
        np.sort(rng.uniform(0, SECONDS, REQUESTS)).round(3),
        rng.integers(50, 900, REQUESTS),
        rng.integers(20, 300, REQUESTS),
    )
    path = tmp_path_factory.mktemp("plan") / "own.csv"
    rows = "".join(",".join(map(str, row)) + "\n" for row in zip(*columns, strict=True))
    path.write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}")
    return {
        "trace": str(path),
        "llm": "Llama-3.1-8B",
        "gpu": ("H100-SXM", "H200-SXM", "A100-80GB-SXM", "L4"),
        "tp": (1,),
        "slo": "ttft=1s,tpot=20ms",
        "engine": "vllm@0.12",
        "price": {"H100-SXM": "2.49/gpu"},
        "as_of": "2026-11-21",
    }


@pytest.fixture(scope="session")
def plan(settings) -> Plan:
    """A feasible plan with a second choice, a pruned and an infeasible candidate."""
    return planned(PlanSettings(**settings))


@pytest.fixture
def best(plan) -> Candidate:
    """The cheapest candidate of the plan."""
    return plan.best


@pytest.fixture(scope="session")
def classed(settings) -> Plan:
    """The plan where chat must attain 99 % and code 95 %: less in all than 99 %."""
    path = Path(settings["trace"]).with_name("classes.csv")
    heading, *rows = Path(settings["trace"]).read_text().splitlines()
    kinds = [f"{row},{'chat' if k % 3 else 'code'}" for k, row in enumerate(rows)]
    path.write_text("\n".join([f"{heading},class", *kinds]) + "\n")
    own = {"trace": str(path), "attainment": "0.99,code=0.95"}
    return planned(PlanSettings(**settings | own))


@pytest.fixture(scope="session")
def doubted(settings) -> Plan:
    """A plan in which a cheaper candidate has an estimated latency."""
    gpus = {"gpu": ("H100-SXM", "MI300X")}
    gpus["price"] = {"H100-SXM": "2.49/gpu", "MI300X": "0.50/gpu"}
    return planned(PlanSettings(**settings | gpus))


@pytest.fixture(scope="session")
def infeasible(settings) -> Plan:
    """A plan without an answer."""
    return planned(PlanSettings(**settings | {"slo": "ttft=1s,tpot=1ms"}))


@pytest.fixture(scope="session")
def small_settings(tmp_path_factory) -> SimulateSettings:
    """Two replicas that serve 200 requests of one output token, which have no TPOT."""
    path = tmp_path_factory.mktemp("trace") / "own.csv"
    rows = "".join(f"{i / 20},{50 + i % 7},1\n" for i in range(200))
    path.write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}")
    return SimulateSettings(
        trace=path,
        latency_ms="5,0.01,0,0.1,0",
        kv_blocks=500,
        max_num_seqs=16,
        replicas=2,
        slo="ttft=1s",
    )


@pytest.fixture(scope="session")
def run(small_settings) -> Run:
    """The run of these settings."""
    return simulate_deployment(small_settings)
