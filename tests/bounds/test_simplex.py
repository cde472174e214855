"""Linear programs of a few variables have the solution that SciPy finds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from capplan.bounds.simplex import maximized


def program(seed, *, whole):
    """Return a random program; one of small whole numbers has many ties."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(1, 5)), int(rng.integers(1, 300))
    if whole:
        gain, rows, limits = (rng.integers(0, 4, size) for size in (n, (m, n), m))
        return gain.astype(float), rows.astype(float), limits.astype(float)
    units = 10.0 ** rng.uniform(-6, 6, n)  # tokens of context against one iteration
    return rng.random(n) * units, rng.random((m, n)) * units, rng.random(m) + 0.01


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_no_solution_is_better_and_none_breaks_a_limit(seed, whole):
    gain, rows, limits = program(seed, whole=whole)

    found = maximized(gain, rows, limits)

    # In units of its own for each variable: tolerances of SciPy are absolute.
    unit = rows.max(axis=0)
    unit[unit == 0] = 1
    best = linprog(-gain / unit, rows / unit, limits)
    if best.status == 3:  # unbounded
        assert found is None
        return
    assert found is not None
    assert (found >= -1e-12 / unit).all()
    assert (rows @ found <= limits + 1e-9).all()
    assert gain @ found == pytest.approx(-best.fun, rel=1e-9, abs=1e-12)


def test_a_limit_below_zero_has_no_solution_here():
    assert maximized(np.ones(1), np.ones((1, 1)), np.array([-1.0])) is None
