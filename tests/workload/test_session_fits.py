"""Drawn conversations are as their fits say, and whole."""

import numpy as np
import pytest

from capplan.errors import InputError
from capplan.workload.catalog import open_workload
from capplan.workload.session_fits import fits
from capplan.workload.sessions import session_figures


@pytest.mark.parametrize("name", fits())
def test_sessions_are_drawn_alike_by_a_seed_and_turns_come_after_answers(name):
    trace, again = (open_workload(f"{name}:n=20", seed=3) for _ in range(2))

    assert trace.prompt_tokens.tolist() == again.prompt_tokens.tolist()
    assert int(trace.session.max()) == 19
    assert trace.arrival_s is None
    assert ((trace.after < 0) == (trace.turn == 0)).all()
    assert fits()[name]["source"] in trace.notes[0]


def test_agents_are_as_the_corpus_that_they_were_fitted_to():
    trace = open_workload("agents-coding:n=300", seed=1)

    figures = session_figures(trace, 64)

    assert figures.means["turns"] == pytest.approx(67, rel=0.1)
    grown = np.diff(trace.prompt_tokens)[trace.after[1:] >= 0]
    assert np.median(grown[grown > 0]) == pytest.approx(673, rel=0.1)
    assert np.median(trace.output_tokens) == pytest.approx(218, rel=0.1)
    assert figures.quantiles["think_s"][0] == pytest.approx(10, rel=0.2)
    assert figures.curve.share(np.inf) == pytest.approx(0.96, abs=0.02)


@pytest.mark.parametrize("text", ["agents-coding:n=0", "agents:n=5"])
def test_a_workload_that_is_none_is_refused(text):
    with pytest.raises(InputError, match=r"n is 0; expected|no such file"):
        open_workload(text)
