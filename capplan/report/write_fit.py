"""Fit a latency profile; write it, its plot and its report."""

from pathlib import Path

from capplan.calibration.fit_profile import Fitted, PointsFit, fit_profile
from capplan.calibration.settings import FitSettings
from capplan.files import check_folder
from capplan.latency.profile_file import save_profile
from capplan.report.pages.fit import fit_page
from capplan.report.pages.profiles import check_plot, write_plot
from capplan.report.write_page import Written, write_page


def fit(settings: FitSettings) -> tuple[Fitted, Written]:
    """Return the fit, and the paths of the files written."""
    check_plot(settings.plot)
    if settings.report is not None:
        check_folder(settings.report)
    fitted = fit_profile(settings)
    written = [Path(settings.out)]
    save_profile(fitted.profile, settings.out)
    if settings.plot is not None:
        points = fitted.points if isinstance(fitted, PointsFit) else None
        write_plot(fitted.profile, settings.plot, points)
        written.append(settings.plot)
    if settings.report is not None:
        written += write_page(fit_page(fitted), settings.report)
    return fitted, tuple(written)
