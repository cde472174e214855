"""The text of a result, as its files have it: read again without computing it again.

``explained.json`` is of one document beside it, whose digest it states.
"""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field

from capplan.errors import InputError
from capplan.input_file import content_sha256, parse_json, read_text
from capplan.report.columns import column
from capplan.report.page import Page, Section, Table
from capplan.report.received.plan_document import plan_path
from capplan.report.received.plan_record import Record, checked

FILE = "explained.json"


class _Column(Record):
    heading: str
    is_left: bool
    leaves: int


class _Table(Record):
    title: str
    columns: list[_Column]
    rows: list[list[str]]
    note: str

    @classmethod
    def of(cls, table: Table) -> Self:
        rows = [[each.text(row) for each in table.shown] for row in table.rows]
        columns = [
            _Column(
                heading=each.heading, is_left=each.justify == "left", leaves=each.leaves
            )
            for each in table.shown
        ]
        return cls(title=table.title, columns=columns, rows=rows, note=table.note)

    @property
    def table(self) -> Table:
        columns = [
            column(
                "",
                each.heading,
                justify="left" if each.is_left else "right",
                path=str(at),
                leaves=each.leaves,
            )
            for at, each in enumerate(self.columns)
        ]
        return Table(columns, self.rows, self.title, self.note)


class _Section(Record):
    topic: str
    heading: str
    facts: list[Annotated[list[str], Field(min_length=2, max_length=2)]]
    command: str
    notes: list[str]
    tables: list[_Table]


class _Said(Record):
    label: str  # of ``LABELS``, or ``FLEET``
    short: str
    more: str


class Explained(Record):
    """What is said of a result: on its first screen, and by topic."""

    sha256: str  # of the document that it explains
    headline: str
    about: str
    is_failure: bool
    warnings: list[str]
    sections: list[_Section]
    said: list[_Said] = Field(default_factory=list)
    instead: list[_Table] = Field(default_factory=list)  # none, or one

    @classmethod
    def of(cls, page: Page, sha256: str) -> Self:
        """Return the text of a page, of the document with a digest."""
        first = page.answer
        instead = None if first is None else first.instead
        return cls(
            sha256=sha256,
            headline=page.headline,
            about=page.about,
            is_failure=page.is_failure,
            warnings=page.to_check,
            sections=[
                _Section(
                    topic=part.topic,
                    heading=part.heading,
                    facts=[list(fact) for fact in part.known_facts],
                    command=part.command,
                    notes=list(part.notes),
                    tables=[_Table.of(table) for table in part.full_tables],
                )
                for part in page.sections
                if part.topic and part.has_text
            ],
            said=[
                _Said(label=label, short=said.short, more=said.more)
                for label, said in (first.said if first else ())
            ],
            instead=[] if instead is None else [_Table.of(instead)],
        )

    @property
    def page(self) -> Page:
        """What is printed."""
        sections = [
            Section(
                part.heading,
                [(label, text) for label, text in part.facts],
                [each.table for each in part.tables],
                command=part.command,
                notes=part.notes,
                topic=part.topic,
            )
            for part in self.sections
        ]
        return Page(
            "explained",
            self.headline,
            self.about,
            sections,
            self.model_dump,
            warnings=self.warnings,
            is_failure=self.is_failure,
        )


def explained(path: Path) -> Explained:
    """Return what a document's folder says of it; refused where it is of another."""
    document = plan_path(path)
    beside = document.with_name(FILE)
    digest = content_sha256(document)
    if not beside.is_file():
        raise InputError(
            f"{document}: no {FILE} lies beside it; expected the folder of --out"
        )
    content = parse_json(beside, read_text(beside))
    found = checked(beside, "", Explained, content)
    if found.sha256 != digest:
        raise InputError(
            f"{beside}: explains another file than {document.name}, or one that was "
            "changed; expected both as --out wrote them"
        )
    return found
