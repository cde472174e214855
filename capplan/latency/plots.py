"""Plot a profile and its residuals as one HTML file that opens offline."""

from pathlib import Path

import numpy as np

from capplan.errors import InputError
from capplan.files import write_texts
from capplan.latency.measurements import Points
from capplan.latency.profile import Profile

_CONTEXTS = (512, 2048, 8192)
_SIGMAS = 2.0


def write_plot(profile: Profile, path: Path, points: Points | None = None) -> None:
    """Write curves with their interval of two sigmas and, given points, residuals."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{path}: a plot is an HTML page; expected a name in .html")
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    titles = ["Decode iteration", "Prefill iteration"]
    if points is not None:
        titles += ["Residual by phase", "Measured against fitted"]
    figure = make_subplots(rows=len(titles) // 2, cols=2, subplot_titles=titles)
    for trace in _decode_traces(profile):
        figure.add_trace(go.Scatter(**trace), row=1, col=1)
    for trace in _prefill_traces(profile):
        figure.add_trace(go.Scatter(**trace), row=1, col=2)
    figure.update_xaxes(title="requests in the batch", row=1, col=1)
    figure.update_xaxes(title="prompt tokens", row=1, col=2)
    figure.update_yaxes(title="ms", rangemode="tozero", row=1)
    if points is not None:
        fitted_s = profile.predict(points)
        for name, rows in points.phases().items():
            x, y = 1e3 * fitted_s[rows], 1e3 * points.seconds[rows]
            residual = 100 * (points.seconds[rows] / fitted_s[rows] - 1)
            box = go.Box(y=residual, name=name, showlegend=False)
            dots = go.Scatter(x=x, y=y, mode="markers", name=name)
            figure.add_trace(box, row=2, col=1)
            figure.add_trace(dots, row=2, col=2)
        figure.update_yaxes(title="measured over fitted − 1 [%]", row=2, col=1)
        figure.update_xaxes(title="fitted [ms]", type="log", row=2, col=2)
        figure.update_yaxes(title="measured [ms]", type="log", row=2, col=2)
    figure.update_layout(
        title=profile.note(), template="plotly_white", height=420 * (len(titles) // 2)
    )
    text = figure.to_html(include_plotlyjs=True, full_html=True)
    write_texts({path.name: text}, path.parent)


def _decode_traces(profile: Profile) -> list[dict]:
    measured = profile.validity.decode
    largest = int(measured.batch[1]) if measured else 256
    batch = np.unique(np.geomspace(1, max(largest, 2), 200).astype(int)).astype(float)
    base_s, slope_s = profile.decode.base_s(batch), profile.decode.context_s(batch)
    band = _SIGMAS * profile.sigma("decode")
    return [
        trace
        for context in _CONTEXTS
        for trace in _with_band(
            batch, base_s + slope_s * batch * context, band, f"context {context:,}"
        )
    ]


def _prefill_traces(profile: Profile) -> list[dict]:
    measured = profile.validity.prefill
    largest = int(measured.new_tokens[1]) if measured else 8192
    tokens = np.unique(np.geomspace(1, max(largest, 2), 300).astype(int)).astype(float)
    time_s = profile.fused.tokens_time_s(tokens)
    time_s = time_s + profile.fused.attention_s * tokens**2 / 2
    return _with_band(tokens, time_s, _SIGMAS * profile.sigma("prefill"), "one prompt")


def _with_band(x: np.ndarray, time_s: np.ndarray, band: float, name: str) -> list[dict]:
    line = {"x": x, "y": 1e3 * time_s, "mode": "lines", "name": name}
    if not band:
        return [line]
    around = np.concatenate([time_s * (1 + band), (time_s * (1 - band))[::-1]])
    shade = {
        "x": np.concatenate([x, x[::-1]]),
        "y": 1e3 * around,
        "fill": "toself",
        "mode": "none",
        "fillcolor": "rgba(110, 110, 110, 0.3)",
        "name": f"{name}, interval",
        "showlegend": False,
    }
    return [shade, line]
