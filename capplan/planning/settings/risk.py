"""Settings of a plan's risk: what is drawn, how often, and the quantile asked for."""

import re
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import BeforeValidator

from capplan.errors import InputError
from capplan.setting_values import parts
from capplan.settings import Settings, setting, validated_with

RISK = "Risk"

BY_ITSELF = ("days", "profile", "lengths", "prices")
"""What is drawn from what is known of it."""
BETWEEN = ("growth", "output")
"""What is drawn between two factors that the user gives."""
Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
WEEKDAYS: tuple[Weekday, ...] = get_args(Weekday)

MOST_DRAWS = 100_000
_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"
_BETWEEN = re.compile(f"{_NUMBER}:{_NUMBER}")


def parse_drawn(text: str) -> tuple[str, tuple[float, float] | None]:
    """Return the name of ``growth=0.9:1.5`` and its two factors; none of ``days``.

    Examples
    --------
    >>> parse_drawn("growth=0.9:1.5"), parse_drawn("days")
    (('growth', (0.9, 1.5)), ('days', None))
    """
    name, equals, values = text.partition("=")
    if name in BY_ITSELF and not equals:
        return name, None
    found = _BETWEEN.fullmatch(values)
    if name in BETWEEN and found:
        low, high = map(float, found.groups())
        if 0 < low <= high <= 1000:
            return name, (low, high)
    known = ", ".join((*BY_ITSELF, *(f"{each}=LOW:HIGH" for each in BETWEEN)))
    raise InputError(f"{text!r} cannot be drawn; expected of {known}")


def _check_draw(texts: tuple[str, ...]) -> None:
    """Refuse nothing to draw, and what is drawn twice."""
    names = [parse_drawn(text)[0] for text in texts]
    if not names:
        raise InputError("is empty; leave it out, or draws too")
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"has {name} twice; expected it once")


class RiskSettings(Settings):
    """Whether a plan is followed by draws of what it rests on."""

    needs: ClassVar = dict.fromkeys(
        ("quantile", "draw", "first_day", "penalty"), "--draws N"
    )

    draws: int | None = setting(
        None,
        RISK,
        "N",
        "Draw whole days of the trace, the profile's error and lengths N times: the "
        "distribution of replicas and $.",
        ge=1,
        le=MOST_DRAWS,
    )
    quantile: float = setting(
        0.9,
        RISK,
        "SHARE",
        "Share of the draws that the count asked for serves.",
        gt=0,
        lt=1,
    )
    draw: Annotated[
        tuple[Annotated[str, validated_with(parse_drawn)], ...],
        BeforeValidator(parts),
        validated_with(_check_draw),
    ] = setting(
        ("days", "profile", "lengths"),
        RISK,
        "A,B",
        "What is drawn: days, profile, lengths, prices (of the providers), "
        "growth=0.9:1.5 and output=0.8:1.3 (factors on rate and answer lengths, 80 % "
        "of the draws between).",
    )
    first_day: Weekday | None = setting(
        None,
        RISK,
        "mon|…|sun",
        "Day of the week of the first arrival: weekdays are then drawn among "
        "weekdays (default: not known, any day for any).",
    )
    penalty: float | None = setting(
        None,
        RISK,
        "USD",
        "What a missing node costs in a month, for the worth of knowing more (default: "
        "a node of the dearest provider).",
        ge=0,
    )

    @property
    def drawn(self) -> dict[str, tuple[float, float] | None]:
        """What is drawn, with the factors that the user gave."""
        return dict(parse_drawn(text) for text in self.draw)
