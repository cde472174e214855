"""Charts of a latency profile: its curves, and its residuals on points."""

import numpy as np

from capplan.latency.measurements import Points
from capplan.latency.profile import Profile
from capplan.report.charts.svg_chart import Axis, Line, Rule, figure
from capplan.report.columns import format_count
from capplan.report.page import Figure
from capplan.units import format_duration

_CONTEXTS = (512, 2048, 8192)
_SIGMAS = 2.0


def profile_figures(profile: Profile, points: Points | None = None) -> list[Figure]:
    """Return curves with their interval of two sigmas and, given points, residuals."""
    curves = [_decode(profile), _prefill(profile)]
    return curves if points is None else [*curves, *_residuals(profile, points)]


def _decode(profile: Profile) -> Figure:
    measured = profile.validity.decode
    most = max(int(measured.batch[1]) if measured else 256, 2)
    batch = np.unique(np.geomspace(1, most, 200).astype(int)).astype(float)
    base_s, slope_s = profile.decode.base_s(batch), profile.decode.context_s(batch)
    lines = [
        _curve(
            f"context {context:,}",
            batch,
            base_s + slope_s * batch * context,
            profile.sigma("decode"),
        )
        for context in _CONTEXTS
    ]
    return _curves("Decode iteration", "requests in the batch", lines)


def _prefill(profile: Profile) -> Figure:
    measured = profile.validity.prefill
    most = max(int(measured.new_tokens[1]) if measured else 8192, 2)
    tokens = np.unique(np.geomspace(1, most, 300).astype(int)).astype(float)
    time_s = profile.fused.tokens_time_s(tokens)
    time_s = time_s + profile.fused.attention_s * tokens**2 / 2
    line = _curve("one prompt", tokens, time_s, profile.sigma("prefill"))
    return _curves("Prefill iteration", "prompt tokens", [line])


def _curve(label: str, x: np.ndarray, time_s: np.ndarray, sigma: float) -> Line:
    """Return a curve, shaded where its error is known."""
    if not sigma:
        return Line(label, x, time_s)
    band = _SIGMAS * sigma
    low, high = time_s * (1 - band), time_s * (1 + band)
    return Line(label, x, time_s, low, high, shaded=True)


def _curves(title: str, label: str, lines: list[Line]) -> Figure:
    most_x = max(float(line.x[-1]) for line in lines)
    ends = [line.y if line.high is None else line.high for line in lines]
    most_s = max(float(np.max(end)) for end in ends) * 1.05
    x = Axis(label, format_count, 0.0, most_x)
    y = Axis("iteration", format_duration, 0.0, most_s)
    shaded = any(line.shaded for line in lines)
    caption = (
        "Shaded: two standard deviations of points not fitted to." if shaded else ""
    )
    return figure(title, x, y, lines, caption=caption)


def _residuals(profile: Profile, points: Points) -> list[Figure]:
    fitted_s = profile.predict(points)
    off = points.seconds / fitted_s - 1
    low_s = float(min(fitted_s.min(), points.seconds.min())) / 1.2
    high_s = float(max(fitted_s.max(), points.seconds.max())) * 1.2
    most = float(np.abs(off).max()) * 1.1 or 0.01
    phases = points.phases()
    time_of = Axis("fitted", format_duration, low_s, high_s, log=True)
    share = Axis("measured over fitted − 1", "{:+.1%}".format, -most, most)
    measured = Axis("measured", format_duration, low_s, high_s, log=True)
    diagonal = Line("equal", np.array([low_s, high_s]), np.array([low_s, high_s]))

    def by_phase(y: np.ndarray) -> list[Line]:
        return [
            Line(name, fitted_s[rows], y[rows], markers=True, joined=False)
            for name, rows in phases.items()
        ]

    zero = Rule("", y=0.0)
    lines = [*by_phase(points.seconds), diagonal]
    return [
        figure("Residual by phase", time_of, share, by_phase(off), [zero]),
        figure("Measured against fitted", time_of, measured, lines),
    ]
