"""A plan with the factor of a backtest: slower times, and the range of its interval."""

import json

import numpy as np
import pytest

from capplan.errors import InputError
from capplan.latency.measured_factor import MeasuredFactor
from capplan.planning.configure.configuration import configurations, only_configuration
from capplan.planning.settings.plan import PlanSettings

pytestmark = pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")

ASKED = {"llm": "Llama-3.1-8B", "gpu": "H100-SXM", "tp": "1"}
OF = {"llm": "Llama-3.1-8B", "gpu": "H100-SXM", "layout": "tp1"}
PHI = {"value": 1.12, "low": 1.04, "high": 1.19, "windows": 6}


def written(folder, **changes):
    """Write a backtest.json; return its path."""
    document = {"schema": "capplan.backtest/1", "phi": PHI, "deployment": OF, **changes}
    path = folder / "backtest.json"
    path.write_text(json.dumps(document))
    return path


def test_times_are_longer_and_the_range_is_that_of_the_interval(tmp_path):
    before = only_configuration(PlanSettings(**ASKED))
    path = written(tmp_path)

    after = only_configuration(PlanSettings(**ASKED, backtest=str(path)))

    assert after.tables.decode_s == pytest.approx(1.12 * before.tables.decode_s)
    assert after.tables.request_s == before.tables.request_s
    # As many users as are within the limit of 1.25 times the shortest TPOT, were the
    # times those of an end of the interval.
    limit_s, tables = 1.25 * after.tables.decode_s[1], before.tables
    users = [
        np.searchsorted(factor * tables.decode_s[1:], limit_s)
        for factor in (1.19, 1.12, 1.04)
    ]
    low, high = after.capacity_ratio
    assert low == pytest.approx(users[0] / users[1], abs=0.15)
    assert high == pytest.approx(users[2] / users[1], abs=0.15)
    assert low < 1 < high
    assert after.sureness == "measured"
    assert "Times 1.12 [1.04, 1.19], by a backtest" in after.note


def test_settings_hold_the_factor_and_not_the_file(tmp_path):
    path = written(tmp_path)
    settings = PlanSettings(**ASKED, backtest=str(tmp_path))
    path.unlink()

    again = PlanSettings(**settings.document(set()))

    assert again.backtest == "1.12[1.04,1.19]@Llama-3.1-8B/H100-SXM/tp1"


def test_other_gpus_keep_their_times(tmp_path):
    asked = {**ASKED, "gpu": "H100-SXM,L40S", "backtest": str(written(tmp_path))}

    rows = {row.gpu: row for row in configurations(PlanSettings(**asked))}

    assert rows["H100-SXM"].backtested == MeasuredFactor(
        1.12, 1.04, 1.19, "Llama-3.1-8B/H100-SXM/tp1"
    )
    assert rows["L40S"].backtested is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": "capplan.plan/9"}, "expected a backtest.json"),
        ({"phi": None}, "every window was saturated"),
        ({"phi": {"value": 1.1}}, "malformed"),
        ({"phi": {**PHI, "value": 2.0}}, "expected low ≤ value ≤ high"),
    ],
)
def test_what_has_no_factor_is_refused(tmp_path, changes, message):
    path = written(tmp_path, **changes)

    with pytest.raises(InputError, match=message):
        PlanSettings(**ASKED, backtest=str(path))


def test_a_backtest_of_another_fleet_is_refused(tmp_path):
    path = written(tmp_path, deployment={**OF, "gpu": "L40S"})

    with pytest.raises(InputError, match="on L40S/tp1, which is not"):
        list(configurations(PlanSettings(**ASKED, backtest=str(path))))
