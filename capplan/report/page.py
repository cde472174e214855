"""Fill in the template of a self-contained HTML page; every text is escaped."""

from pathlib import Path
from typing import Any

from capplan.report.columns import DASH, format_count, format_fine_usd, format_share
from capplan.units import format_duration, format_usd

TEMPLATES = Path(__file__).parent / "templates"


def render_page(template: str, **values: Any) -> str:
    """Return a template filled in with values; a missing one is an error."""
    # Imported here: only commands that write a page wait for it.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {
        "share": lambda value: DASH if value is None else format_share(value),
        "count": lambda value: DASH if value is None else format_count(value),
        "duration": lambda value: DASH if value is None else format_duration(value),
        "usd": format_usd,
        "fine_usd": format_fine_usd,
    }
    return templates.get_template(template).render(**values)
