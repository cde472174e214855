"""The JSON of a plan and of a run, as it is written to files."""

from capplan.report.pages.plan import plan_values
from capplan.report.pages.run import run_values
from capplan.report.render.json_text import json_text


def plan_json(plan):
    """Return the text of ``plan.json``."""
    return json_text(plan_values(plan))


def run_json(run):
    """Return the text of ``simulation.json``."""
    return json_text(run_values(run))
