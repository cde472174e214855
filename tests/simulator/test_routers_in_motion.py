"""Routers that remember, in fleets that move: as the judge has it, and by hand."""

from dataclasses import replace

import numpy as np
import pytest
from fleet_cases import KINDS, FleetCase, check, draw
from simulated_fleet import differences, simulated

from tests.rest_slow import rest_slow

AT_REST = "at rest"
ROUTED = [kind for kind in KINDS if not kind.startswith("aladdin")]


def routers(rng: np.random.Generator, unit_s: float) -> list[str]:
    """Return each router with settings that matter in a case of a few requests."""
    looks_s = int(rng.integers(0, 6)) * unit_s
    later_s = int(rng.integers(1, 60)) * unit_s
    return [
        "dynamo-kv",
        f"dynamo-kv:overlap={rng.choice([0, 0.3, 2])}",
        "dynamo-kv:temperature=0.5",
        f"dynamo-kv:events=0,ttl={later_s}s,blocks={rng.integers(5, 60)}",
        f"llm-d:refresh={looks_s}s,index=approximate,capacity={rng.integers(0, 20)}",
        f"sglang-cache-aware:threshold={rng.choice([0.1, 0.5])},abs=1,rel=1.2,"
        f"period={later_s}s,size={rng.integers(20, 400)}",
        "prefix-aware:chunk=8",
        f"prefix-aware:chunk=8,match=24,window={later_s}s",
        f"session:window={later_s}s",
        f"consistent-hash:tokens={rng.integers(1, 12)}",
        f"size-split:tokens={rng.integers(8, 36)},share={rng.choice([0.3, 0.5, 0.7])}",
    ]


def remembering(kind: str, number: int) -> FleetCase:
    """Return a random case with these routers; at rest nothing else moves."""
    case = draw("events" if kind == AT_REST else kind, number)
    rng = np.random.default_rng([number, 7])
    names = routers(rng, 1.0 if case.exact else 1 / 64)
    # Each in turn, beside any other one in the second pool.
    places = number % len(names), int(rng.integers(len(names)))
    pools = [
        (*pool[:2], "vllm-v1" if kind in KINDS else pool[2], pool[3], names[place])
        for pool, place in zip(case.pools, places, strict=False)
    ]
    session = rng.integers(-1, 4, len(case.trace))
    session[0] = 0
    trace = replace(case.trace, session=session)
    moving = {} if kind == AT_REST else case.moving
    return case._replace(trace=trace, pools=pools, moving=moving)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [AT_REST, *ROUTED])
@pytest.mark.parametrize(
    "first", rest_slow(range(0, 220, 55), lambda first: first < 55)
)
def test_routers_that_remember_choose_as_the_judge_has_it(kind, first):
    found = {}
    for number in range(first, first + 55):
        case = remembering(kind, number)
        if case.answers_tie:
            continue
        verdict = case.judged()
        if verdict.counted["ticks at which several drain"]:
            continue  # in which order their rows are looked at is not told
        check(case, verdict)
        different = differences(case, verdict, simulated(case))
        if different:
            found[number, case.pools[0][4], case.pools[-1][4]] = different

    assert not found
