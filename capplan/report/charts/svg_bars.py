"""A chart of horizontal bars as inline SVG, without a script."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import escape

from capplan.report.charts.svg_chart import COLOURS, WIDTH, svg, text_px

_LEFT, _RIGHT, _ROW, _THICK = 132, 96, 25, 15
_GAP_PX, _LEAST_BAR_PX = 8, 140
"""Room between a label and the axis, and for the longest bar at least. [px]"""


class Bar(NamedTuple):
    """One bar: its label, its value, the text at its end, a mark on it."""

    label: str
    value: float | None  # None: no bar, the text alone
    text: str
    mark: float | None = None
    stands_out: bool = False  # in another colour
    start: float = 0.0  # where the bar begins


def bars(label: str, rows: Sequence[Bar]) -> str:
    """Return the SVG element of bars from above to below; texts are escaped."""
    most = max((row.value or 0 for row in rows), default=0) or 1
    height = _ROW * len(rows) + 6
    parts = []
    widest = max((text_px(row.label) for row in rows), default=0.0)
    after = max((text_px(row.text) for row in rows), default=0.0)
    right = max(_RIGHT, math.ceil(after) + _GAP_PX)
    left = max(_LEFT, math.ceil(widest) + 2 * _GAP_PX)
    left = min(left, WIDTH - right - _LEAST_BAR_PX)
    span = WIDTH - left - right
    for index, row in enumerate(rows):
        top = _ROW * index + 6
        length, begin = (span * at / most for at in (row.value or 0, row.start))
        parts.append(
            f'<text class="label" x="{left - _GAP_PX}" y="{top + 12}" '
            f'text-anchor="end">{escape(row.label)}</text>'
            f'<text x="{left + length + 6:.1f}" y="{top + 12}">'
            f"{escape(row.text)}</text>"
        )
        if row.value is not None:
            parts.append(
                f'<rect x="{left + begin:.4g}" y="{top}" width="{length - begin:.1f}" '
                f'height="{_THICK}" '
                f'fill="{COLOURS[1 if row.stands_out else 0]}"/>'
            )
        if row.mark is not None:
            at = left + span * min(row.mark / most, 1)
            parts.append(
                f'<path stroke="#fff" stroke-width="2" d="M{at:.1f} {top}v{_THICK}"/>'
            )
    parts.append(f'<path class="axis" d="M{left} 0V{height}"/>')
    return svg(height, label, parts)
