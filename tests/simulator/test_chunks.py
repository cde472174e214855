"""A trace fed in chunks is served as one fed at once."""

import numpy as np
import pytest
from cases import EXAMPLES, Case, cases
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.simulator.fleet.fleet import Fleet
from capplan.simulator.fleet.pool_state import Options
from capplan.simulator.routers import ROUTERS
from tests.deployments import fleet_of

ROW_BY_ROW = ("row", "replica", "preemptions", "cached_tokens")
TIMES = ("scheduled_s", "first_token_s", "finish_s", "longest_gap_s")


def results(case: Case, router: str, cuts: list[int]) -> np.ndarray:
    """Serve the trace in slices that end at ``cuts``; return results by row."""
    deployed = Fleet(
        fleet_of(
            case.tables,
            case.engine,
            case.replica_count,
            router=router,
            scheduler="vllm-v1",
        ),
        Options(seed=1, bin_width_s=1.0),
    )
    n = len(case.trace)
    ends = sorted({min(cut, n) for cut in cuts} | {n})
    parts = []
    for first, end in zip([0, *ends], ends, strict=False):
        if end > first:
            parts += [p.copy() for p in deployed.serve(case.trace, slice(first, end))]
    parts += list(deployed.finish())
    return np.sort(np.concatenate(parts), order="row")


@pytest.mark.parametrize("router", sorted(ROUTERS))
@settings(deadline=None, max_examples=EXAMPLES)
@given(case=cases(), cuts=st.lists(st.integers(1, 24), max_size=4))
def test_chunks_change_nothing(router, case, cuts):
    at_once = results(case, router, [])

    in_chunks = results(case, router, cuts)

    assert at_once["row"].tolist() == list(range(len(case.trace)))
    for name in ROW_BY_ROW:
        assert at_once[name].tolist() == in_chunks[name].tolist()
    for name in TIMES:
        np.testing.assert_allclose(at_once[name], in_chunks[name], rtol=0, atol=1e-9)
