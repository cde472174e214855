"""What a replica has done by a moment, and what work costs, against slow judges."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from capplan.planning.evaluate.saturation import _costs, _work_done


def judged(times, moment_s):
    """Return the work done until a moment, request by request."""
    done = np.zeros(3)
    for begun_s, first_s, end_s, prompt, output in zip(
        times.scheduled_s,
        times.first_token_s,
        times.finish_s,
        times.prompt_tokens,
        times.output_tokens,
        strict=True,
    ):
        prefilled = np.clip((moment_s - begun_s) / max(first_s - begun_s, 1e-12), 0, 1)
        decoded = np.clip((moment_s - first_s) / max(end_s - first_s, 1e-12), 0, 1)
        decoded *= output - 1
        done += (
            prefilled * prompt,
            prefilled + decoded,
            decoded * (prompt + decoded / 2),
        )
    return done


@given(st.integers(1, 60), st.integers(0, 2**32 - 1))
def test_work_done_is_that_of_each_request_for_itself(count, seed):
    rng = np.random.default_rng(seed)
    # Whole seconds, so that requests begin, answer and end at moments that are asked.
    begun_s, prefill_s, decode_s = rng.integers(0, 4, (3, count)).astype(float)
    output = np.where(decode_s > 0, rng.integers(2, 50, count), 1)
    times = SimpleNamespace(
        scheduled_s=begun_s,
        first_token_s=begun_s + prefill_s,
        finish_s=begun_s + prefill_s + decode_s,
        prompt_tokens=rng.integers(1, 5000, count),
        output_tokens=output,
    )
    moments_s = np.sort(rng.choice([0.0, 0.5, 1.0, 2.0, 3.7, 9.0, 20.0], 5))

    done = _work_done(times, moments_s)

    expected = [judged(times, moment_s) for moment_s in moments_s]
    assert done == pytest.approx(np.array(expected), rel=1e-12, abs=1e-9)


@given(st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([0, 1, -1]))
def test_costs_are_the_least_squares_of_scipy(seed, alike, factor):
    rng = np.random.default_rng(seed)
    work = rng.random((40, 3))
    if alike:
        work[:, 1] = work[:, 0] + 0.01 * rng.random(40)
    work[:, 2] *= factor
    time_s = np.full(40, rng.random())

    costs = _costs(work, time_s)

    expected, _ = nnls(work, time_s)
    assert (costs >= 0).all()
    assert costs == pytest.approx(expected, rel=1e-6, abs=1e-9)
