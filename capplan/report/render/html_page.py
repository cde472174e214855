"""A page as one HTML file that opens offline and prints; every text is escaped."""

import re
from pathlib import Path
from typing import Any

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
    templates.filters["breaking"] = _breaking
    return templates.get_template("page.html.j2").render(
        page=page, warnings=merged(page.warnings), made_by=made_by()
    )


def _breaking(text: Any) -> Any:
    """Return a text whose lines may break behind commas, but not before a % sign."""
    from markupsafe import Markup, escape

    joined = re.sub(r"(?<=\d) %", "\u00a0%", str(text))
    return Markup(re.sub(r",(?=[^\s\d])", ",<wbr>", str(escape(joined))))
