"""Fit a latency profile; write it, its plot and its report."""

from pathlib import Path

from capplan.calibration.fit_profile import PointsFit, fit_profile
from capplan.calibration.settings import FitSettings
from capplan.errors import InputError
from capplan.files import check_folder
from capplan.latency.profile_file import save_profile
from capplan.latency.rank_fit import RanksFit
from capplan.planning.backtest.fitted import FleetFit
from capplan.report.page import Page
from capplan.report.pages.fit import (
    acceptance_page,
    fit_page,
    fleet_fit_page,
    rank_fit_page,
)
from capplan.report.pages.profiles import check_plot, write_plot
from capplan.report.received.acceptance import Results, accepted, results_of
from capplan.report.received.fleet_fit import fleet_fit_of
from capplan.report.writers.page_files import Written, write_page


def fit(settings: FitSettings) -> tuple[Page, Written]:
    """Return the page of the fit, and the paths of the files written."""
    check_plot(settings.plot)
    if settings.report is not None:
        check_folder(settings.report)
    fitted = fleet_fit_of(settings) or results_of(settings) or fit_profile(settings)
    if isinstance(fitted, RanksFit) and settings.plot is not None:
        raise InputError(
            f"--plot is {settings.plot}; curves are drawn of profiles of TP alone, "
            "so leave it out"
        )
    written = [Path(settings.out)]
    save_profile(fitted.profile, settings.out)
    if isinstance(fitted, Results):
        page = acceptance_page(accepted(fitted, settings.out))
    elif isinstance(fitted, FleetFit):
        page = fleet_fit_page(fitted)
    elif isinstance(fitted, RanksFit):
        page = rank_fit_page(fitted)
    else:
        page = fit_page(fitted)
    if settings.plot is not None and not isinstance(fitted, RanksFit):
        points = fitted.points if isinstance(fitted, PointsFit) else None
        write_plot(fitted.profile, settings.plot, points)
        written.append(settings.plot)
    if settings.report is not None:
        written += write_page(page, settings.report)
    return page, tuple(written)
