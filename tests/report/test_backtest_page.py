"""What a backtest shows of its windows: each, or of many a row for each replica."""

from types import SimpleNamespace

from capplan.planning.backtest.result import ComparedWindow
from capplan.report.pages import backtest

MIDNIGHT_S = 1767225600  # 2026-01-01


def window(replica, index, requests, itl_s, phi):
    since_s = MIDNIGHT_S + 600 * index
    figures = {} if itl_s is None else {"itl_s_mean": itl_s}
    return ComparedWindow(
        replica, since_s, since_s + 600, requests, {}, figures, figures, {}, phi, False
    )


def test_many_windows_are_one_row_of_each_replica():
    # 100 requests of 20 ms and 300 of 40 ms: 35 ms in the mean; φ in the middle.
    windows = [
        window("a", 0, 100, 0.020, 1.0),
        window("a", 1, 300, 0.040, 1.3),
        window("a", 3, 50, None, 1.1),
        window("b", 2, 10, 0.010, None),
    ]

    first, second = backtest._by_replica(windows)

    assert (first.replica, first.requests) == ("a", 450)
    assert (first.first_s, first.last_s) == (MIDNIGHT_S, MIDNIGHT_S + 2400)
    assert first.measured == {"itl_s_mean": 0.035}
    assert (first.phi, second.phi) == (1.1, None)


def test_times_of_a_clock_are_dates():
    table = backtest.windows_table(
        SimpleNamespace(windows=[window("a", 0, 100, 0.02, 1.0)])
    )

    texts = [column.text(table.rows[0]) for column in table.shown]

    assert texts[:3] == ["a", "2026-01-01 00:00", "2026-01-01 00:10"]
    assert backtest._moment(1234.0) == "1,234 s"
