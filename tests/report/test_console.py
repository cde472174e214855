"""Progress: share and time left, as lines where standard error is no terminal."""

import pytest

from capplan.planning.evaluate.inputs import part_of
from capplan.report import console
from capplan.report.console import Remaining, progress, request_progress
from capplan.report.writers.profiling import profiling_progress


class Clock:
    """A clock that is set by hand."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_the_time_left_is_that_of_the_share_done_at_the_same_pace():
    clock = Clock()
    remaining = Remaining(clock)

    begun = remaining.text(0.2)  # what came before is no measure of the pace
    clock.now_s = 30.0
    later = remaining.text(0.5)

    # 0.3 took 30 s, so 0.5 takes 50 s.
    assert begun == " (20%)"
    assert later == " (50%, about 50 s left)"


def test_no_share_and_a_share_that_falls_tell_no_time():
    clock = Clock()
    remaining = Remaining(clock)
    remaining.text(0.5)
    clock.now_s = 10.0

    assert remaining.text(None) == ""
    assert remaining.text(0.4) == " (40%)"


def test_progress_never_says_100_percent_and_no_time_where_it_is_not_known(
    capsys, monkeypatch
):
    monkeypatch.setattr(console, "LINE_EVERY_S", 0.0)
    monkeypatch.setattr(console.time, "monotonic", Clock())

    with progress() as show:
        show("the last but one", 0.999)
        show("one more than was foreseen", 1.25)
    with request_progress() as show_arrived:
        show_arrived(0, 4000)
        show_arrived(3999, 4000)
        show_arrived(4000, 4000)  # what was drawn beside them is still to be judged
        show_arrived(4100, 4000)  # the total of a file is an estimate

    assert capsys.readouterr().err.splitlines() == [
        "capplan: the last but one (99%)",
        "capplan: one more than was foreseen",
        "capplan: 0 requests (0%)",
        "capplan: 3,999 requests (99%, about 1 s left)",
        "capplan: 4,000 requests",
        "capplan: 4,100 requests",
    ]


def test_a_terminal_shows_no_time_once_all_requests_have_arrived(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr("rich.console.Console.is_terminal", True)

    with request_progress() as show:
        for arrived in (0, 2000, 4000):
            show(arrived, 4000)

    assert "100%" not in capsys.readouterr().err


def test_a_pipe_gets_a_line_now_and_then_with_percent_of_the_steps(capsys, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(console.time, "monotonic", clock)

    with progress() as show:
        for second in range(0, 31, 5):
            clock.now_s = float(second)
            show(f"step {second} [x]", second / 40)

    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "capplan: step 10 [x] (25%)",
        "capplan: step 20 [x] (50%)",
        "capplan: step 30 [x] (75%)",
    ]


def test_a_pipe_gets_lines_of_a_simulation_too(capsys, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(console.time, "monotonic", clock)

    with request_progress() as show:
        for second in (0, 10, 20):
            clock.now_s = float(second)
            show(100 * second, 4000)

    assert capsys.readouterr().err.splitlines() == [
        "capplan: 1,000 requests (25%, about 30 s left)",
        "capplan: 2,000 requests (50%, about 20 s left)",
    ]


def test_a_pipe_gets_lines_of_each_degree_that_is_profiled(capsys, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(console.time, "monotonic", clock)

    with profiling_progress([1, 2]) as show:
        show(1, 0, 0, "starting the engine")
        show(1, 0, 100, "decode")
        clock.now_s = 20.0
        show(1, 25, 100, "decode")
        show(2, 50, 100, "mixed")

    assert capsys.readouterr().err.splitlines() == [
        "capplan: TP 1: decode (25%, about 60 s left)"
    ]


@pytest.mark.parametrize("shown", [progress, request_progress])
def test_quiet_shows_nothing(shown, capsys, monkeypatch):
    monkeypatch.setattr(console, "LINE_EVERY_S", 0.0)

    with shown(quiet=True) as show:
        if show is not None:
            show("a step", 0.5)

    assert capsys.readouterr().err == ""


def test_the_share_of_a_part_is_within_its_part_of_the_whole():
    seen = []
    step = part_of(lambda text, share=None: seen.append((text, share)), 1, 4, "x: ")

    step("begins")
    step("goes on", 0.5)

    assert seen == [("x: begins", 0.25), ("x: goes on", 0.375)]
