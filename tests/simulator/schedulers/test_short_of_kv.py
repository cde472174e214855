"""SGLang and TensorRT-LLM meet their judges where KV is short all the time."""

from dataclasses import replace

import numpy as np
import pytest
from cases import Case, random_tables, with_limits
from judge import judge
from test_against_judge import assert_same

from capplan.deployment.engine import EngineSettings
from capplan.simulator.checks import refused
from capplan.simulator.schedulers import parse_scheduler
from capplan.workload.trace import Trace
from tests.rest_slow import rest_slow

SEATS = 6
LONGEST = 24


def case(name: str, seed: int) -> Case:
    """Return requests that come faster than they are served, and little KV."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 40))
    exact = bool(rng.integers(0, 2))
    gaps = rng.integers(0, 12, n) * 2.0**-6
    gaps = gaps if exact else gaps * rng.random(n)
    prompts, answers = rng.integers(1, LONGEST, n), rng.integers(1, LONGEST, n)
    settings = {
        "sglang": {
            "mixed": int(rng.integers(0, 2)),
            "ignore_eos": int(rng.random() < 0.1),
            "init_ratio": float(rng.choice([0.0, 0.3, 0.7])),
            "min_factor": float(rng.choice([0.14, 1.0])),
            "decay_steps": int(rng.choice([5, 600])),
            "retract_steps": int(rng.choice([0, 5, 20])),
            "clip": int(rng.choice([1, 4, 4096])),
            "max_prefill_tokens": int(rng.choice([10, 16384])),
        },
        "trtllm": {
            "policy": str(rng.choice(["guaranteed_no_evict", "max_utilization"])),
            "chunked": int(rng.integers(0, 2)),
        },
    }[name]
    given = ",".join(f"{key}={value}" for key, value in settings.items())
    block_size = int(rng.integers(1, 6))
    engine = EngineSettings(
        max_num_batched_tokens=int(rng.integers(max(SEATS, block_size), 3 * LONGEST)),
        max_num_seqs=int(rng.integers(2, SEATS + 1)),
        block_size=block_size,
        kv_blocks=2 + LONGEST // block_size,
        async_scheduling=bool(rng.integers(0, 2)),
        prefix_caching=name == "sglang" and bool(rng.integers(0, 2)),
        scheduler=parse_scheduler(f"{name}:{given}"),
        bounded_groups=int(rng.integers(0, 2)),
        bounded_blocks=2,
    )
    prefixes = {
        "prefix_group": rng.integers(-1, 3, n),
        "prefix_tokens": rng.integers(0, LONGEST, n),
    }
    trace = with_limits(Trace(prompts, answers, np.cumsum(gaps), **prefixes), rng)
    if name == "trtllm" and refused(trace, replace(engine, kv_blocks=999))[0].any():
        engine = replace(engine, max_num_batched_tokens=2 * LONGEST)
    while _misfit(trace, engine):
        engine = replace(engine, kv_blocks=engine.kv_blocks + 1)
    tables = random_tables(seed, SEATS, 4 * LONGEST, exact)
    return Case(trace, tables, engine, 1)


def _misfit(trace: Trace, engine: EngineSettings) -> bool:
    held = engine.request_blocks(trace.prompt_tokens + trace.output_tokens - 1)
    return bool((held >= engine.kv_blocks).any() or refused(trace, engine)[0].any())


def meets(name: str, seeds: range) -> int:
    """Compare all; return how many preemptions there were."""
    preemptions = 0
    for seed in seeds:
        each = case(name, seed)
        scheduler = str(each.engine.scheduler)
        simulation = each.simulated("jsq", scheduler=scheduler)
        verdict = judge(*each, "jsq", scheduler=scheduler)
        assert_same(simulation, verdict)
        preemptions += int(simulation.times.preemptions.sum())
    return preemptions


@pytest.mark.parametrize("name", ["sglang", "trtllm"])
def test_some_cases_meet_the_judge(name):
    assert meets(name, range(20)) > 20


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["sglang", "trtllm"])
@pytest.mark.parametrize("part", rest_slow(range(4), lambda part: part == 0))
def test_hundreds_of_cases_meet_the_judge(name, part):
    assert meets(name, range(20 + 100 * part, 120 + 100 * part)) > 100
