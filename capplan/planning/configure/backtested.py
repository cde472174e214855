"""Configurations with the factor that a backtest found of a fleet of theirs."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from capplan.deployment.configuration import Configuration
from capplan.errors import InputError, warn
from capplan.latency.measured_factor import MeasuredFactor
from capplan.llm.catalog import llm as find_llm
from capplan.planning.configure.excluded import Excluded
from capplan.planning.settings.asked import Asked


def backtested(
    tried: Iterable[Configuration | Excluded], settings: Asked
) -> Iterator[Configuration | Excluded]:
    """Yield configurations; that of the backtest with its factor on the times."""
    if settings.backtest is None:
        yield from tried
        return
    factor, others = MeasuredFactor.parse(settings.backtest), []
    llm = "" if settings.llm is None else find_llm(settings.llm).name
    found = False
    for row in tried:
        if not isinstance(row, Configuration):
            yield row
        elif f"{llm}/{row.gpu}/{row.layout}" == factor.of:
            found = True
            yield replace(row.slowed(factor.value), backtested=factor)
        else:
            others.append(f"{row.gpu} {row.layout}")
            yield row
    if not found:
        of = " on ".join(factor.of.split("/", 1))
        raise InputError(f"--backtest is of {of}, which is not planned")
    if others:
        warn(f"no backtest of {', '.join(others)}: their times are as assumed")
