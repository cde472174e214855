"""Llumnix before its dispatch alone, and that before round-robin, as its paper says."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

STUDIES = Path(__file__).parents[2] / "examples" / "studies"


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(STUDIES))
    return import_module("papers_llumnix")


@pytest.mark.parametrize(
    ("mean", "median", "p99"), [(128, 35, 1661), (256, 30, 4529), (512, 54, 5237)]
)
def test_lengths_have_the_quantiles_of_the_artifacts_law(study, mean, median, p99):
    tokens = study.power_law_tokens(np.random.default_rng(0), 100_000, mean)

    assert np.median(tokens) == pytest.approx(median, rel=0.1)
    assert np.quantile(tokens, 0.99) == pytest.approx(p99, rel=0.1)


@pytest.mark.thorough
def test_migration_and_dispatch_by_freeness_keep_the_papers_order(study):
    trace = study.requests(0, 512, 512, 2.9, count=3000)

    figures = [
        study.figures_of(study.run(system, trace, 3).table) for system in study.SYSTEMS
    ]

    for name in ("e2e", "prefill_p99", "decode_p99", "loss"):
        round_robin, dispatch, llumnix = (getattr(each, name) for each in figures)
        assert round_robin > dispatch > llumnix


def test_a_migrated_request_waits_for_its_last_blocks_only(study):
    down_s = study.downtime_s()

    # The last stage: a handshake of 23 ms and 1 to 16 blocks of 8 MiB over 15 GB/s.
    blocks = (down_s - 0.023) / (8 * 2**20 / 15e9)
    assert len(down_s) > 1000
    assert blocks == pytest.approx(np.round(blocks), abs=1e-6)
    assert (blocks.min().round(), blocks.max().round()) == (1, 16)
