"""Service level objectives: what a request must keep, and how many must keep it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from capplan.errors import InputError
from capplan.units import format_duration, parse_duration_s

_LIMITS = ("ttft", "tpot", "e2e")


@dataclass(frozen=True)
class RequestSlo:
    """Limits on one request; infinite where there is none.

    A request attains its SLO when its time to first token, its time per output
    token averaged over the request (ATGT of Aladdin, section 2.2; a one-token
    answer has none) and its end-to-end time are all within the limits.

    Parameters
    ----------
    ttft_s
        Time to first token. [s]
    tpot_s
        Time per output token after the first, mean over the request. [s]
    e2e_s
        Arrival to last token. [s]

    Raises
    ------
    InputError
        When a limit is not positive.
    """

    ttft_s: float = float("inf")
    tpot_s: float = float("inf")
    e2e_s: float = float("inf")

    def __post_init__(self) -> None:
        """Refuse limits that nothing can keep."""
        for name in _LIMITS:
            limit = getattr(self, f"{name}_s")
            if not limit > 0:
                raise InputError(f"SLO {name} is {limit} s; expected more than 0")

    def __str__(self) -> str:
        """Return the limits as a reader writes them."""
        shown = [
            f"{name} ≤ {format_duration(getattr(self, f'{name}_s'))}"
            for name in _LIMITS
            if np.isfinite(getattr(self, f"{name}_s"))
        ]
        return ", ".join(shown) or "no limits"


@dataclass(frozen=True)
class Slo:
    """The SLO of every class of a trace and the share that must attain it.

    Parameters
    ----------
    default
        Limits of a class that has none of its own; None when each must have one.
    attainment
        Share of requests that must keep their limits, in (0, 1].
    by_class
        Limits of the classes that have their own.

    Raises
    ------
    InputError
        When ``attainment`` is not a share.
    """

    default: RequestSlo | None
    attainment: float = 0.99
    by_class: Mapping[str, RequestSlo] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a share that is not one."""
        if not 0 < self.attainment <= 1:
            raise InputError(
                f"attainment is {self.attainment}; expected more than 0 and at most 1"
            )

    def of_class(self, class_name: str) -> RequestSlo:
        """Return the limits of one class.

        Raises
        ------
        InputError
            When the class has no limits and there is no default.
        """
        limits = self.by_class.get(class_name, self.default)
        if limits is None:
            known = ", ".join(sorted(self.by_class)) or "none"
            raise InputError(
                f"class {class_name!r} of the trace has no SLO; given: {known}"
            )
        return limits

    def columns(
        self, request_class: np.ndarray, class_names: tuple[str, ...]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return TTFT, TPOT and e2e limits, shape (n,) each. [s]"""
        used = [self.of_class(name) for name in class_names]
        ttft_s, tpot_s, e2e_s = (
            np.array([getattr(limits, f"{name}_s") for limits in used])[request_class]
            for name in _LIMITS
        )
        return ttft_s, tpot_s, e2e_s


def parse_slo(texts: str | list[str], attainment: float = 0.99) -> Slo:
    """Return the SLO written as ``ttft=1s,tpot=30ms`` or ``chat:ttft=1s``.

    Parameters
    ----------
    texts
        One text or several; one with a ``class:`` in front holds for that class.
    attainment
        Share of requests that must keep it.

    Raises
    ------
    InputError
        When a text is malformed.

    Examples
    --------
    >>> parse_slo("ttft=1s,tpot=30ms").default
    RequestSlo(ttft_s=1.0, tpot_s=0.03, e2e_s=inf)
    """
    default: RequestSlo | None = None
    by_class: dict[str, RequestSlo] = {}
    for text in [texts] if isinstance(texts, str) else texts:
        class_name, colon, limits_text = text.rpartition(":")
        limits = _parse_limits(limits_text, text)
        if colon:
            by_class[class_name.strip()] = limits
        else:
            default = limits
    return Slo(default, attainment, by_class)


def _parse_limits(limits_text: str, text: str) -> RequestSlo:
    limits: dict[str, float] = {}
    for part in limits_text.split(","):
        name, equals, value = part.partition("=")
        name = name.strip()
        if not equals or name not in _LIMITS:
            raise InputError(
                f"--slo {text!r}: {part!r} is not a limit; "
                f"expected one of {', '.join(_LIMITS)} as in ttft=1s,tpot=30ms"
            )
        if name in limits:
            raise InputError(f"--slo {text!r}: {name} is given twice")
        limits[name] = parse_duration_s(value)
    return RequestSlo(**{f"{name}_s": value for name, value in limits.items()})
