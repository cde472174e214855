"""Files of a plan beside those that every result has."""

from capplan.planning.plan.result import Plan


def plan_files(plan: Plan, *, xlsx: bool = False) -> dict[str, str | bytes]:
    """Return them by name; empty where the plan has no such file."""
    from capplan.report.pages.plan import plan_page
    from capplan.report.render.markdown import brief
    from capplan.report.workbook.plan_book import plan_workbook
    from capplan.report.writers.focus import focus_csv, plan_charges

    return {
        "plan.md": brief(plan_page(plan)),
        "plan.focus.csv": focus_csv(plan_charges(plan)),
        "plan.xlsx": plan_workbook(plan) if xlsx else b"",
    }
