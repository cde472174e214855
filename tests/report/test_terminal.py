"""The terminal: the answer first, in words, and no markup from a trace."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from capplan.planning.launch import Launch
from capplan.report.terminal import print_plan


def printed(plan, width=120):
    text = io.StringIO()
    print_plan(plan, Console(file=text, width=width, highlight=False))
    return text.getvalue()


def test_the_first_line_is_the_answer(plan):
    first = printed(plan).splitlines()[0]

    assert first.startswith("40 GPUs = 5 replicas × 8 (TP 8)")


def test_the_bill_is_quantity_times_unit_price_is_amount(plan):
    lines = [" ".join(line.split()) for line in printed(plan).splitlines()]

    assert "per hour 40 GPUs × $2.49 per GPU-hour = $99.60" in lines
    assert "per month 730 h × $99.60 per hour = $72,708" in lines


def test_the_count_below_is_shown_failing_and_the_bound_with_its_gap(plan):
    text = printed(plan)

    assert "4 replicas simulated: 91.34 % of requests meet the SLO." in text
    assert "32 GPUs: at most 8 GPUs (25%) above the minimum" in text


def test_each_warning_is_printed_once(plan):
    twice = replace(plan, warnings=plan.warnings * 2)

    assert printed(twice).count("was not measured on your machine") == 1


def test_text_in_square_brackets_is_text(plan):
    assert "[red]x[/red]" in printed(replace(plan, trace_source="[red]x[/red]"))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(plan, width):
    for line in printed(plan, width).splitlines():
        assert len(line) <= width or line.startswith("vllm serve ")


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_command_to_copy_is_one_line_however_narrow_the_terminal(plan, width):
    lines = printed(plan, width).splitlines()

    at = lines.index(plan.best.launch_line)
    assert lines[at - 1] == "start each replica with"
    assert lines[at + 1] == "served in bf16"


def test_the_command_to_copy_is_printed_to_the_letter(plan, best):
    folder = "/models/:warning: [red]x[/red]"
    launch = Launch(("vllm", "serve", folder, "--max-num-seqs", "8"))

    lines = printed(replace(plan, best=replace(best, launch=launch))).splitlines()

    assert f"vllm serve '{folder}' --max-num-seqs 8" in lines


@pytest.mark.parametrize("width", [80, 120])
def test_a_table_of_classes_has_limits_target_attained_and_percentiles(classed, width):
    lines = [" ".join(line.split()) for line in printed(classed, width).splitlines()]

    (chat,) = [line for line in lines if line.startswith("chat ttft")]
    (code,) = [line for line in lines if line.startswith("code ttft")]
    for text in ("99 %", "99.5 %", "900 ms", "28 ms", "12.5 s"):
        assert text in chat
    for text in ("95 %", "96 %"):
        assert text in code
    assert not any("asked 99 %;" in line for line in lines)
    assert not any(len(line) > width for line in lines if "vllm serve" not in line)


def test_a_plan_of_one_class_has_no_table_of_classes(plan):
    assert "attained  " not in printed(plan)


def test_an_uncertain_candidate_stands_beside_the_headline_with_its_range(doubted):
    text = " ".join(printed(doubted).split())

    assert text.startswith("40 GPUs = 5 replicas × 8 (TP 8)")
    doubts = "real engines carry 0.25 to 1.00 of what is assumed (2 to 8 replicas)"
    assert f"(TP 8) of MI300X, $99.60 per hour: {doubts}" in text
    assert f"MI300X TP 8 uncertain: {doubts}" in text


def test_a_count_found_to_10_percent_says_so(plan, best):
    rough = replace(plan.candidates[1], coarse=True)
    rows = (best, rough, *plan.candidates[2:])

    text = " ".join(printed(replace(plan, candidates=rows)).split())

    assert "A100-SXM-80GB TP 4 feasible: its count is found to 10 %" in text
    assert "H100-SXM TP 8 feasible" not in text


def test_a_headline_that_is_uncertain_itself_says_so(doubted):
    alone = replace(doubted, best=doubted.best_estimated)

    lines = printed(alone).splitlines()

    assert "MI300X" in lines[0]
    assert lines[1].startswith("uncertain     real engines carry 0.25 to 1.00")


def test_a_scheduler_that_no_engine_has_says_so_in_place_of_a_command(plan, best):
    other = replace(best, launch=Launch((), ("schedules as orca; no vllm serve does",)))

    text = printed(replace(plan, best=other))

    assert "schedules as orca; no vllm serve does" in text
    assert "start each replica with" not in text


def test_an_infeasible_plan_says_so_first_and_why(infeasible):
    lines = printed(infeasible).splitlines()

    assert lines[0].startswith("Infeasible")
    assert "tpot=7ms would do" in " ".join(lines[1:3])
