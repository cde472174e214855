"""Write a plan's files: all of them or none, never half of one."""

from pathlib import Path

from capplan.files import write_texts
from capplan.planning.result import Plan


def write_plan(plan: Plan, folder: str | Path) -> tuple[Path, ...]:
    """Write ``plan.json``, ``plan.csv`` and ``report.html``; return where."""
    from capplan.report.write_csv import plan_csv
    from capplan.report.write_html import plan_html
    from capplan.report.write_json import plan_json

    texts = {
        "plan.json": plan_json(plan),
        "plan.csv": plan_csv(plan),
        "report.html": plan_html(plan),
    }
    return write_texts(texts, folder)
