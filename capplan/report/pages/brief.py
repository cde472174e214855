"""A plan on one page, for a pull request or a wiki: parts of its full page."""

from dataclasses import replace

from capplan.planning.plan.result import Plan
from capplan.report.page import Page, Section, Table
from capplan.report.pages.assumptions import ASSUMPTION, grouped
from capplan.report.pages.cost import COST
from capplan.report.pages.plan import WHY, plan_page
from capplan.report.pages.purchase import MONEY

MOST_ROWS = 20
"""Rows of a table on the page."""
_ASKED = ("assumed", "given")
"""How assumptions were obtained that a reader should check."""


def brief_page(plan: Plan) -> Page:
    """Return the answer, its cost, its command, what was assumed, and candidates."""
    page = plan_page(plan)
    commands = [section for section in page.sections if section.command]
    named = {section.heading: section for section in page.sections}
    kept = [named[heading] for heading in (COST, MONEY, WHY) if heading in named]
    return replace(
        page,
        sections=[
            *kept,
            *commands,
            _assumed(plan),
            _cut(named["Candidates"], keeps_facts=plan.best is None),
        ],
    )


def _cut(section: Section, *, keeps_facts: bool) -> Section:
    """Return a section whose tables are short; why others lose is in the report."""
    tables = []
    for table in section.tables:
        left = len(table.rows) - MOST_ROWS
        note = f"{left:,} more are in plan.csv." if left > 0 else table.note
        tables.append(replace(table, rows=table.rows[:MOST_ROWS], note=note))
    facts = section.facts[:MOST_ROWS] if keeps_facts else ()
    return replace(section, tables=tables, facts=facts)


def _assumed(plan: Plan) -> Section:
    """Return what was assumed or given; how many more figures have a source."""
    tables: list[Table] = []
    rest = 0
    for heading, rows in grouped(plan.assumptions):
        if rows[0].how in _ASKED:
            tables.append(Table(ASSUMPTION, rows[:MOST_ROWS], title=heading))
            rest += len(rows[MOST_ROWS:])
        else:
            rest += len(rows)
    notes = [f"{rest:,} more, measured or published, are in report.md."] if rest else []
    return Section("What was assumed", tables=tables, notes=notes)
