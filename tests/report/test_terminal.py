"""The terminal: answer first, warnings last, no markup of a trace, no cut figure."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from capplan.planning.configure.launch import Launch
from capplan.report.columns import column
from capplan.report.fields import fields
from capplan.report.page import Page, Section, Table
from capplan.report.pages.candidates import COLUMNS as PLAN
from capplan.report.pages.plan import plan_page
from capplan.report.render.terminal import print_page
from tests.report.answered import PAGE, screen


def shown(page, width=120):
    text = io.StringIO()
    print_page(page, Console(file=text, width=width, highlight=False))
    return text.getvalue()


def printed(plan, width=120):
    return shown(plan_page(plan), width)


def page_of(*sections, **more):
    return Page("own", "It is so", "of this", sections, dict, **more)


def test_the_answer_stands_first_and_the_warnings_last(plan):
    lines = printed(plan).splitlines()

    assert lines[0] == "Rent 3 H100-SXM GPUs for $5,453 a month."
    assert lines[1].startswith("Llama-3.1-8B · 75 requests/s, ")
    assert lines[2].startswith("They serve 75 requests a second. ")
    assert lines.index("") < min(
        k for k, line in enumerate(lines) if line.startswith("warning: ")
    )


def test_each_warning_is_printed_once():
    assert shown(page_of(warnings=("[b]careful", "[b]careful"))).count("careful") == 1


def test_text_in_square_brackets_is_text(plan):
    assert "[red]x[/red]" in printed(replace(plan, trace_source="[red]x[/red]"))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_of_words_is_wider_than_the_terminal(plan, classed, width):
    for line in (
        printed(plan, width).splitlines() + printed(classed, width).splitlines()
    ):
        is_table = line.startswith(" ")  # whose figures are never cut
        assert len(line) <= max(width, 80 * is_table) or line.startswith("vllm serve ")


def test_a_terminal_of_80_columns_keeps_attainment_p99_and_price_and_cuts_none(plan):
    assert " binds" in printed(plan, 120)
    narrow = printed(plan, 80)
    heading = next(line for line in narrow.splitlines() if "p99 TTFT" in line)
    assert {"in time", "p99 TTFT", "p99 TPOT", "$ per hour"} <= set(
        re.split(r"\s{2,}", heading.strip())
    )
    assert len(heading) <= 80
    assert "too narrow for binds, $/Mtok out, $/Mtok in" in narrow
    assert "too narrow" not in printed(plan, 120)


def test_columns_leave_in_their_order_the_last_of_equals_first():
    columns = [
        column("", f"heading {k}", path=str(k), leaves=leaves)
        for k, leaves in enumerate((0, 2, 1, 1, 0))
    ]
    page = page_of(Section(tables=[Table(columns, [range(5)])]))

    figures = {
        width: shown(page, width).splitlines()[3].split() for width in (60, 50, 40, 30)
    }

    # A column takes 11 and the space beside it.
    assert figures[60] == ["0", "1", "2", "3", "4"]
    assert figures[50] == ["0", "1", "2", "4"]
    assert figures[40] == ["0", "1", "4"]
    assert figures[30] == ["0", "4"]


OF_POLICY = {"break_even": str, "lower_bound_gpu_hours": float}


@pytest.mark.parametrize("columns", [PLAN, fields("autoscale_policy", **OF_POLICY)])
def test_every_overview_keeps_the_attainment_at_80_columns(columns):
    stays = [each for each in columns if each.heading and not each.leaves]

    names = {each.name for each in stays}
    assert "slo_attainment" in names
    if {"ttft_p99_s", "tpot_p99_s"} & {each.name for each in columns}:
        assert {"ttft_p99_s", "tpot_p99_s"} <= names
    # The name of a row takes 21 at most: vllm-v1-disaggregated.
    assert 23 + sum(len(each.heading) + 2 for each in stays[1:]) <= 80


def test_a_table_wider_than_the_terminal_keeps_its_figures():
    columns = [column("", f"heading {k}", path=str(k)) for k in range(9)]

    text = shown(page_of(Section(tables=[Table(columns, [range(9)])])), 40)

    assert text.splitlines()[3].split() == list("012345678")


def test_a_long_table_says_how_many_rows_are_in_the_files():
    rows = [(k,) for k in range(50)]

    table = Table([column("", "row", path="0")], rows)
    text = shown(page_of(Section(tables=[table])))

    assert "39" in text
    assert "… and 10 more rows; --out writes all" in text


def test_details_are_left_to_the_files(plan):
    assert "Simulated replica counts" in [x.heading for x in plan_page(plan).sections]
    assert "too close to call" not in printed(plan)
    assert "max_num_seqs   " not in printed(plan)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_command_to_copy_is_one_line_however_narrow_the_terminal(plan, width):
    lines = printed(plan, width).splitlines()

    at = lines.index(plan.best.launch.line)
    assert lines[at - 1] == "start each replica with"


def test_the_command_to_copy_is_printed_to_the_letter(plan, best):
    folder = "/models/:warning: [red]x[/red]"
    launch = Launch(("vllm", "serve", folder, "--max-num-seqs", "8"))

    lines = printed(replace(plan, best=replace(best, launch=launch))).splitlines()

    assert f"vllm serve '{folder}' --max-num-seqs 8" in lines


def test_a_scheduler_that_no_engine_has_says_so_in_place_of_a_command(plan, best):
    why = "schedules as orca; no vllm serve command: vLLM does not"

    text = printed(replace(plan, best=replace(best, launch=Launch((), (why,)))))

    assert f"{why}." in text
    assert "start each replica with" not in text


@pytest.mark.parametrize(
    ("warning", "told"),
    [
        ("no subject; but two parts", "no subject; but two parts"),
        ("A, TP 1; B, TP 2: too long", "too long"),
        ("A, TP 1: too long; cut it", "A, TP 1: too long; cut it"),
    ],
)
def test_a_note_is_never_empty_and_leaves_out_several_subjects(warning, told):
    answer = PAGE.answer._replace(notes=[warning])
    lines = screen(replace(PAGE, answer=answer, warnings=())).splitlines()

    (note,) = [line for line in lines if line.startswith("  note")]
    assert note.split(maxsplit=1)[1].strip() == told
