"""The examples of placement run and print what they promise."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "studies"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments", "promised"),
    [
        (
            "aladdin_figures.py",
            ["--rates", "2,3", "--seconds", "5"],
            "peak KV 7 tokens",
        ),
        ("placement_quality.py", [], "88.234"),
    ],
)
def test_an_example_prints_what_it_promises(
    name, arguments, promised, monkeypatch, capsys
):
    monkeypatch.setattr(sys, "argv", [name, *arguments])

    runpy.run_path(str(EXAMPLES / name), run_name="__main__")

    assert promised in capsys.readouterr().out


@pytest.fixture(scope="module")
def figures():
    return runpy.run_path(str(EXAMPLES / "aladdin_figures.py"))


def test_aladdins_groups_need_five_workers_each_for_ten_percent(figures):
    # Appendix A: "if we want the extra worker ... is 10 %, then each scheduling group
    # should have at least five workers".
    group_requests = figures["group_requests"]

    assert group_requests(100, 20, 0.1, 25) == (4, 5, True)
    assert group_requests(100, 19, 0.1, 25) == (4, 4, False)


def test_one_scheduler_that_is_fast_enough_needs_no_groups(figures):
    assert figures["group_requests"](10, 2, 0.1, 25) == (1, 2, True)


def test_rate_within_a_limit_follows_n_log_n(figures):
    rates = np.array([25.0, 250, 2500])
    seconds = 1e-6 * rates * np.log2(rates + 1)

    limit = figures["rate_within"](rates, seconds, 1e-6 * 700 * np.log2(701))

    assert limit == pytest.approx(700)
