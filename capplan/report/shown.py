"""Results in Python: a paragraph, HTML of a notebook, a DataFrame, charts, files."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from capplan.errors import InputError
from capplan.files import check_folder, write_texts
from capplan.planning.plan.result import Plan
from capplan.planning.shown import Shown
from capplan.report.columns import plural
from capplan.report.page import Page, Section, Table
from capplan.report.questions import named, question_of
from capplan.report.render.documents import DOCUMENTS, document
from capplan.report.writers.page_files import plan_files, write_page

if TYPE_CHECKING:
    import pandas as pd

_ROWS = 20
"""Rows of a table that a notebook shows."""
_FACTS = 3
"""Facts, and rows, of a paragraph of a page without a lead."""
_ROW_PX = 400
"""Height of a row of charts with its title, legend and caption. [px]"""


def page_of(result: Any) -> Page:
    """Return the page of a result."""
    make = named(f"capplan.report.pages.{question_of(result).page}")
    page: Page = make(result)
    return page


class Charts:
    """The charts of a result, drawn as in its report."""

    def __init__(self, page: Page) -> None:
        drawn = [figure for part in page.sections for figure in part.drawn]
        figures = [*filter(None, [page.chart]), *drawn]
        section = Section("", figures=lambda: figures)
        bare = replace(page, answer=None, chart=None, panel=None, warnings=())
        self._page = replace(bare, sections=[section], lead="")
        self.count = len(figures)

    def __repr__(self) -> str:
        return f"<{self.count} charts; save('charts.html') writes them>"

    def _repr_html_(self) -> str:
        """Return the charts in a frame, whose style stays its own."""
        height = 180 + _ROW_PX * -(-self.count // 2)
        return (
            f'<iframe srcdoc="{escape(self._html())}" width="100%" '
            f'height="{height}" style="border:0"></iframe>'
        )

    def _html(self) -> str:
        return document(self._page, "html")

    def save(self, path: str | Path) -> Path:
        """Write the charts as one HTML file that opens offline."""
        path = Path(path)
        if path.suffix != ".html":
            raise InputError(f"{path}: charts are a web page; expected a name in .html")
        return write_texts({path.name: self._html()}, path.parent)[0]


class Pages:
    """Present results by their pages."""

    def text(self, result: Shown) -> str:
        """Return headline and lead, or else the first facts and rows."""
        page = page_of(result)
        told = "; ".join(_answers(page))
        count = len(dict.fromkeys(page.warnings))
        noted = f"{plural(count, 'warning')}: see .warnings." if count else ""
        about = f", {page.about}" if page.about else ""
        lead = f"{page.lead.removesuffix('.')}." if page.lead else ""
        headline = page.headline.removesuffix(".")
        parts = [f"{headline}{about}.", lead, told and f"{told}.", noted]
        return " ".join(filter(None, parts))

    def html(self, result: Shown) -> str:
        """Return the answer and the main table, without a style of its own."""
        page = page_of(result)
        parts = [Markup("<p><b>{}</b> {}</p>").format(page.headline, page.about)]
        if page.lead:
            parts.append(Markup("<p>{}</p>").format(page.lead))
        tables = [table for table in page.csv.values() if table.rows]
        parts += [_html_table(table) for table in tables[:1]]
        parts += [
            Markup("<p>Warning: {}</p>").format(text)
            for text in dict.fromkeys(page.warnings)
        ]
        return "".join(parts)

    def frame(self, result: Shown, table: str | None) -> "pd.DataFrame":
        """Return a table of the page's CSV files with all its named columns."""
        import pandas as pd

        found = page_of(result).csv
        tables = {name.removesuffix(".csv"): found[name] for name in found}
        chosen = next(iter(tables)) if table is None else table
        if chosen not in tables:
            raise InputError(f"no table {table!r}; expected {', '.join(tables)}")
        columns = tables[chosen].named
        rows = [[each.value(row) for each in columns] for row in tables[chosen].rows]
        return pd.DataFrame(rows, columns=[each.name for each in columns])

    def drawn(self, result: Shown) -> Charts:
        """Return the charts of the page."""
        return Charts(page_of(result))

    def save(self, result: Shown, path: str | Path) -> list[Path]:
        """Write all files of the page into a folder, or the one of a name."""
        path = Path(path)
        form = path.suffix.removeprefix(".")
        if form in DOCUMENTS and not path.is_dir():
            text = document(page_of(result), form)
            return list(write_texts({path.name: text}, path.parent))
        if form == "xlsx" and isinstance(result, Plan) and not path.is_dir():
            from capplan.report.workbook.plan_book import plan_workbook

            return list(write_texts({path.name: plan_workbook(result)}, path.parent))
        if form and not path.is_dir():
            known = ", ".join(f".{each}" for each in DOCUMENTS)
            raise InputError(f"{path}: expected a folder, or a name in {known}")
        check_folder(path)
        also = plan_files(result) if isinstance(result, Plan) else {}
        return list(write_page(page_of(result), path, also))


def _answers(page: Page) -> list[str]:
    """Return the labels of a page; without a lead its first facts and rows."""
    if page.answer is not None:
        return [f"{label}: {said.text}" for label, said in page.answer.said if said[0]]
    if page.lead:
        return []
    facts = [fact for part in page.sections for fact in part.known_facts]
    told = [f"{label}: {text}" if label else text for label, text in facts[:_FACTS]]
    tables = [table for part in page.sections for table in part.full_tables]
    return told + [
        ", ".join(f"{each.heading} {each.text(row)}" for each in table.shown)
        for table in tables[:1]
        for row in table.rows[:_FACTS]
    ]


def _html_table(table: Table) -> Markup:
    head = Markup("").join(Markup("<th>{}</th>").format(c.heading) for c in table.shown)
    rows = [
        Markup("").join(Markup("<td>{}</td>").format(c.text(row)) for c in table.shown)
        for row in table.rows[:_ROWS]
    ]
    body = Markup("").join(Markup("<tr>{}</tr>").format(row) for row in rows)
    left = len(table.rows) - _ROWS
    more = f"… and {left:,} more rows; .to_pandas() has all" if left > 0 else ""
    note = Markup("<p>{}</p>").format(more) if more else ""
    return Markup("<table><tr>{}</tr>{}</table>{}").format(head, body, note)


Shown.presenter = Pages()
