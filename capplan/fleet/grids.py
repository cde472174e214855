"""Electricity by country: what a kWh of it emits."""

from functools import cache
from pathlib import Path

from capplan.csv_file import read_rows
from capplan.errors import InputError

_GRIDS = Path(__file__).parent / "data/grids.csv"


@cache
def _grids() -> dict[str, tuple[float, str]]:
    rows = [row for _, row in read_rows(_GRIDS)[1]]
    return {
        row["country"]: (
            float(row["g_co2e_per_kwh"]),
            f"{row['name']} {row['year']}: {row['source']}",
        )
        for row in rows
    }


def grid_of(text: str) -> tuple[float, str]:
    """Return the CO2e of a kWh [g], and its source, of ``USA`` or ``369``.

    Examples
    --------
    >>> grid_of("250")
    (250.0, 'given')
    """
    name = text.strip().upper()
    if name in _grids():
        return _grids()[name]
    try:
        grams = float(name)
    except ValueError:
        raise InputError(
            f"grid {text!r}; expected grams of CO2e per kWh, or one of "
            f"{', '.join(_grids())}"
        ) from None
    if not 0 <= grams <= 2000:
        raise InputError(f"grid {text!r}; expected 0 to 2000 g of CO2e per kWh")
    return grams, "given"
