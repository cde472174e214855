"""A page as one HTML file that opens offline and prints; every text is escaped."""

from pathlib import Path

from capplan.report.alike import merged
from capplan.report.page import Page
from capplan.report.provenance import made_by


def html(page: Page) -> str:
    """Return a page as a self-contained HTML file."""
    # Imported here: only commands that write a page wait for it.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return templates.get_template("page.html.j2").render(
        page=page, warnings=merged(page.warnings), made_by=made_by()
    )
