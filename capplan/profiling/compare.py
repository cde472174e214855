"""Compare two profiles: the times of the same iterations."""

from typing import NamedTuple

from capplan.latency.measurements import points_from_rows
from capplan.latency.profile import Profile
from capplan.profiling.scenes import Point

ITERATIONS = (
    *(
        Point("decode", batch, batch, context)
        for batch in (1, 8, 32, 128, 256)
        for context in (512, 4096)
    ),
    *(Point("prefill", 1, tokens, 0) for tokens in (128, 512, 2048, 8192)),
    *(Point("mixed", batch, batch + 512, 1024) for batch in (8, 64, 256)),
)


class Comparison(NamedTuple):
    """An iteration's time by two profiles."""

    iteration: Point
    first_s: float
    second_s: float


def compare(first: Profile, second: Profile) -> tuple[Comparison, ...]:
    """Return the times of typical iterations by both profiles."""
    points = points_from_rows([(*iteration, 1.0) for iteration in ITERATIONS])
    times = zip(ITERATIONS, first.predict(points), second.predict(points), strict=True)
    return tuple(Comparison(*row) for row in times)
