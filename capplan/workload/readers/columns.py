"""Which columns of a plain CSV hold what: by name, as the user says, or by a guess.

Names of capplan and of known tools are taken as they are. Names that gateways and
observability tools write are guessed, with a note; ``--columns`` says it for certain.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from capplan.errors import InputError, nearest
from capplan.workload.slo import LIMITS, SAME

ARRIVAL_UNITS_S = {
    "arrival_s": 1.0,
    "arrival_ms": 1e-3,
    "arrival_us": 1e-6,
    "arrival_ns": 1e-9,
}
"""Columns of arrivals and their unit. [s]"""

NAMES = {
    "arrival_s": ("arrival_s", "arrived_at"),
    "arrival_ms": ("arrival_ms",),
    "arrival_us": ("arrival_us",),
    "arrival_ns": ("arrival_ns",),
    "prompt_tokens": (
        "prompt_tokens",
        "input_tokens",
        "num_prefill_tokens",
        "prompt_len",
    ),
    "output_tokens": ("output_tokens", "num_decode_tokens", "output_len"),
    "class": ("class", "request_class"),
    "prefix_group": ("prefix_group",),
    "prefix_tokens": ("prefix_tokens",),
    "session": ("session", "session_id"),
    "predicted_output_tokens": ("predicted_output_tokens",),
    "priority": ("priority",),
    "max_new_tokens": ("max_new_tokens",),
    "adapter": ("adapter",),
    "image_tokens": ("image_tokens",),
    "images": ("images", "num_images"),
    "image_offset": ("image_offset",),
    "status": ("status",),
    "requests": ("num_model_requests", "num_requests", "request_count"),
    **{
        f"slo_{name}_s": (
            f"slo_{name}_s",
            *(f"slo_{alias}_s" for alias, same in SAME.items() if same == name),
        )
        for name in LIMITS
    },
}
"""Names of each column in files."""

_GUESSES = {
    "arrival_s": "timestamp ts datetime date_time created created_at created_time "
    "start_time started_at request_time request_timestamp request_start_time "
    "request_created_at arrival arrival_time arrival_timestamp received_at",
    "prompt_tokens": "prompt_tokens input_tokens prompt_token_count input_token_count "
    "num_prompt_tokens num_input_tokens n_prompt_tokens prompt_length input_length "
    "tokens_in tokens_prompt usage_prompt_tokens usage_input_tokens",
    "output_tokens": "output_tokens completion_tokens generated_tokens response_tokens "
    "output_token_count completion_token_count num_output_tokens num_completion_tokens "
    "n_completion_tokens output_length completion_length tokens_out tokens_completion "
    "usage_completion_tokens usage_output_tokens",
    "class": "class tenant tenant_id tenant_name customer customer_id model model_name "
    "model_id",
    "status": "status status_code http_status http_status_code response_status "
    "request_status success succeeded is_success",
}
"""Names that likely hold a column, as :func:`_plain` writes them; the first counts."""

_FIRST_OF_SEVERAL = ("class", "status")
"""Columns of which several guesses may stand in a file: the first is taken."""


@dataclass(frozen=True)
class Columns:
    """Columns of a file that are read, guessed and left out."""

    names: Mapping[str, str]  # name in the file of each column of ``NAMES``
    guessed: tuple[str, ...] = ()  # columns of ``names`` that were guessed
    unread: tuple[str, ...] = ()  # names in the file that stand for none

    @property
    def arrival(self) -> str | None:
        """Column of ``ARRIVAL_UNITS_S`` that the file has; None without."""
        return next((name for name in ARRIVAL_UNITS_S if name in self.names), None)

    def without_guess(self, column: str) -> "Columns":
        """Return the columns without one, if it was guessed."""
        if column not in self.guessed:
            return self
        return Columns(
            {name: text for name, text in self.names.items() if name != column},
            tuple(name for name in self.guessed if name != column),
            (*self.unread, self.names[column]),
        )

    @property
    def note(self) -> str:
        """What was guessed and not read, and how to say it; empty if nothing."""
        parts = []
        if self.guessed:
            said = ",".join(f"{name}={self.names[name]}" for name in self.guessed)
            parts.append(f"columns guessed: {said}")
        if self.unread:
            parts.append(f"columns not read: {', '.join(self.unread)}")
        if not parts:
            return ""
        return f"{'; '.join(parts)}; --columns NAME=COLUMN says otherwise"


def columns_among(
    header: Iterable[str], given: Mapping[str, str] | None = None, source: str = ""
) -> Columns:
    """Return the columns of a header.

    ``given`` has the name in the file of some columns, as the user says; an empty one
    leaves the column out. ``source`` is the file, for messages.
    """
    header, given = list(header), dict(given or {})
    for column, name in given.items():
        if name and name not in header:
            raise InputError(
                f"{source}:1: no column {name}, which --columns names as {column}; "
                f"the header has {', '.join(header)}"
            )
    names = {column: name for column, name in given.items() if name}
    known = [name for name in header if name not in names.values()]
    settled = set(given)
    if settled & set(ARRIVAL_UNITS_S):
        settled |= set(ARRIVAL_UNITS_S)
    for column, aliases in NAMES.items():
        present = [name for name in aliases if name in known]
        if column in settled:
            continue
        if len(present) > 1:
            raise InputError(_ambiguous(source, column, present))
        if present:
            names[column] = present[0]
    stamps = [names[column] for column in ARRIVAL_UNITS_S if column in names]
    if len(stamps) > 1:
        raise InputError(_ambiguous(source, "arrival_s", stamps))
    guessed = _guessed(known, names, settled, source)
    names |= guessed
    unread = tuple(name for name in header if name not in names.values())
    return Columns(names, tuple(guessed), unread)


def check_columns(given: Mapping[str, str]) -> None:
    """Refuse names of columns that no plain CSV has, and one named twice."""
    for column, name in given.items():
        if column not in NAMES:
            raise InputError(
                f"{column!r} is no column of a trace{nearest(column, NAMES)}; expected "
                f"{', '.join(NAMES)}, as in arrival_s=timestamp"
            )
        if list(given.values()).count(name) > 1 and name:
            raise InputError(f"{name!r} is named for two columns; expected one")
    if len(set(given) & set(ARRIVAL_UNITS_S)) > 1:
        raise InputError(
            f"two units of arrivals are named; expected one of "
            f"{', '.join(ARRIVAL_UNITS_S)}"
        )


def _guessed(
    header: list[str], names: Mapping[str, str], settled: set[str], source: str
) -> dict[str, str]:
    """Return the names in the file of columns that it likely has."""
    free = {_plain(name): name for name in header if name not in names.values()}
    found: dict[str, str] = {}
    for column, guesses in _GUESSES.items():
        units = list(ARRIVAL_UNITS_S) if column in ARRIVAL_UNITS_S else [column]
        if set(units) & (settled | set(names)):
            continue
        likely: dict[str, str] = {}
        for guess in guesses.split():
            for unit in units:  # created_at, then created_at_ms
                words = {guess} if unit == column else set()
                if len(units) > 1:
                    words.add(f"{guess}{unit.removeprefix('arrival')}")
                likely |= {free[word]: unit for word in words if word in free}
        if len(likely) > 1 and column not in _FIRST_OF_SEVERAL:
            raise InputError(_ambiguous(source, column, list(likely)))
        found |= {unit: name for name, unit in list(likely.items())[:1]}
    return found


def _plain(name: str) -> str:
    """Return a name in small letters with underlines.

    Examples
    --------
    >>> _plain("startTime"), _plain("usage.Prompt Tokens")
    ('start_time', 'usage_prompt_tokens')
    """
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip())
    return re.sub(r"[^a-z0-9]+", "_", parted.lower()).strip("_")


def _ambiguous(source: str, column: str, names: list[str]) -> str:
    both = " and ".join(names[:2])
    return (
        f"{source}:1: both {both}; expected one of them: say which with --columns "
        f"{column}={names[0]}"
    )
