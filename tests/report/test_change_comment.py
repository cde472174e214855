"""A comment of many scenarios, and when a check fails: of bills worked by hand."""

from types import SimpleNamespace

import pytest

from capplan.report.change_comment import MARK, changed_text, title
from capplan.report.pages.plan import plan_page
from capplan.report.received.plan_diff import parse_rise
from capplan.report.received.scenario_change import (
    Bill,
    Changes,
    ScenarioChange,
    WrittenPlan,
)
from capplan.report.writers.page_files import plan_files, write_page


@pytest.fixture(name="written")
def written_plan(plan, tmp_path):
    write_page(plan_page(plan), tmp_path, plan_files(plan))
    return WrittenPlan.of(tmp_path)


def billed(old, new):
    """Return a change of a scenario of which only the bill is known."""
    return SimpleNamespace(bill=Bill(old, new), new=None)


@pytest.mark.parametrize(
    ("limit", "bills", "fails"),
    [
        ("10%", [(100, 110)], False),
        ("10%", [(100, 110.02)], True),
        ("10%", [(100, 150), (900, 900)], False),  # of 1,000 together
        ("$50", [(100, 150)], False),
        ("$50", [(100, 150.01)], True),
        ("0%", [(100, 90)], False),
        ("10%", [(0, 100)], False),  # the first scenario: a share of nothing
        ("$50", [(0, 100)], True),
        ("10%", [(None, 100)], True),
        ("10%", [(100, None)], True),
    ],
)
def test_a_check_fails_where_all_bills_together_rise_by_more(limit, bills, fails):
    changes = Changes([billed(*bill) for bill in bills], is_compared=True)

    assert bool([*changes.failures(parse_rise(limit), "none")]) is fails


def test_a_bill_that_is_not_known_is_no_number(written):
    changes = Changes([ScenarioChange("a", None, written, "why")], is_compared=True)

    outputs = changes.outputs(title(changes))

    assert title(changes) == "What the change costs cannot be told"
    assert outputs["usd-change"] == outputs["percent-change"] == ""
    assert float(outputs["usd-per-month"]) > 0


def test_a_removed_scenario_that_could_not_be_planned_is_told(written):
    gone = ScenarioChange("gone.yaml", None, None, "gone.yaml:1: colour is no setting")

    text = changed_text(Changes([gone], is_compared=True), [])

    assert "gone.yaml is removed." in text
    assert "it could not be planned: gone.yaml:1: colour" in text


def test_a_comment_of_many_scenarios_is_cut_to_what_fits(written):
    each = [ScenarioChange(f"{at}.yaml", None, written) for at in range(300)]
    changes = Changes(each, is_compared=True)

    whole, cut, short = (
        changed_text(changes, [], most) for most in (10**9, 65_536, 1000)
    )

    assert len(whole) > 65_536
    assert len(cut) <= 65_536
    assert len(short) <= 1000
    for text in (cut, short):
        assert text.startswith(MARK)
        assert text.endswith("The rest is in comment.md, of the job's files.\n")
        assert text.count("<details>") == text.count("</details>")
