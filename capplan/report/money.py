"""Pages in the currency that a result's settings name; without one, in dollars."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar

from capplan.currency import USD, Currency, currency_of
from capplan.report.columns import Column
from capplan.report.page import Page, Section, Table
from capplan.units import shown_in

Result = TypeVar("Result")


def currency_of_result(result: Any) -> Currency:
    """Return the currency that a result's settings name."""
    settings = result.settings
    if not isinstance(settings, Mapping):
        return currency_of(settings.currency, settings.exchange_rate)
    return currency_of(settings.get("currency"), settings.get("exchange_rate"))


def in_its_currency(page_of: Callable[[Result], Page]) -> Callable[[Result], Page]:
    """Show the amounts of a page in the currency of the result.

    Those that capplan reckons are converted where they are formatted, to the last
    digit shown. Charts, and prices in the words of their sources, stay in dollars and
    say so by their sign; so do JSON and CSV, whose names say ``usd``.
    """

    @wraps(page_of)
    def shown(result: Result) -> Page:
        currency = currency_of_result(result)
        if currency == USD:
            return page_of(result)
        with shown_in(currency):
            page = page_of(result)
        sections = [
            replace(each, tables=_tables(each.tables, currency))
            for each in page.sections
        ]
        fact = (
            "currency",
            f"amounts in {currency.code} at ${currency.usd:g} for one, as given; "
            "charts and quoted prices in dollars",
        )
        facts = Section(facts=[fact])
        return replace(page, sections=[*sections, facts])

    return shown


def _tables(tables: Sequence[Table], currency: Currency) -> list[Table]:
    return [replace(each, columns=_columns(each.columns, currency)) for each in tables]


def _columns(columns: Sequence[Column], currency: Currency) -> list[Column]:
    def within(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def run(value: Any) -> Any:
            with shown_in(currency):
                return function(value)

        return run

    return [
        each._replace(
            heading=each.heading.replace("$", currency.code),
            # Without a name it is for people alone, and may be a text already.
            value=each.value if each.name else within(each.value),
            show=within(each.show),
            told=within(each.told) if each.told else None,
        )
        for each in columns
    ]
