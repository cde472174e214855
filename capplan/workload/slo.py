"""Service level objectives: latency limits and the share of requests to meet them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from capplan.errors import InputError
from capplan.units import format_duration, parse_duration_s

LIMITS = ("ttft", "tpot", "e2e")
"""Times of a request that an SLO may limit."""


@dataclass(frozen=True)
class RequestSlo:
    """Limits on one request; infinite where there is none.

    A request meets its SLO when TTFT, TPOT (mean over the request: ATGT of Aladdin,
    section 2.2; a one-token output has none) and end-to-end time are within limits.
    """

    ttft_s: float = float("inf")
    tpot_s: float = float("inf")
    e2e_s: float = float("inf")  # arrival to last token

    def __post_init__(self) -> None:
        """Refuse limits that no request can meet."""
        for name in LIMITS:
            if not self.limit_s(name) > 0:
                raise InputError(
                    f"SLO {name} is {self.limit_s(name)} s; expected more than 0"
                )

    def limit_s(self, name: str) -> float:
        """Return the limit called ttft, tpot or e2e. [s]"""
        return float(getattr(self, f"{name}_s"))

    def __str__(self) -> str:
        """Return ``ttft ≤ 1 s, tpot ≤ 30 ms``."""
        shown = [
            f"{name} ≤ {format_duration(self.limit_s(name))}"
            for name in LIMITS
            if np.isfinite(self.limit_s(name))
        ]
        return ", ".join(shown) or "no limits"


@dataclass(frozen=True)
class Group:
    """Classes of a trace that attain one target together."""

    names: tuple[str, ...]
    indices: tuple[int, ...]  # of the classes in the trace
    target: float  # share of their requests that must meet their limits, in (0, 1]


@dataclass(frozen=True)
class Slo:
    """Limits of every class of a trace and the share of requests to meet them."""

    default: RequestSlo | None  # None when every class must have its own
    attainment: float = 0.99  # in (0, 1]
    by_class: Mapping[str, RequestSlo] = field(default_factory=dict)
    targets: Mapping[str, float] = field(default_factory=dict)  # of classes
    each_class: bool = True  # a class with limits or a target of its own is a group

    def __post_init__(self) -> None:
        """Refuse a share out of range."""
        for share in (self.attainment, *self.targets.values()):
            if not 0 < share <= 1:
                raise InputError(
                    f"attainment is {share}; expected more than 0 and at most 1"
                )
        if self.targets and not self.each_class:
            raise InputError(
                "attainment is given by class and of all requests; expected one of them"
            )

    def groups(self, class_names: tuple[str, ...]) -> tuple[Group, ...]:
        """Return the groups of classes that each attain their target.

        Raises
        ------
        InputError
            When a class that has a target is not in the trace.
        """
        for name in self.targets:
            if name not in class_names:
                known = ", ".join(class_names)
                raise InputError(
                    f"attainment: no class {name!r} in the trace, which has {known}"
                )
        own = {*self.by_class, *self.targets} if self.each_class else set()
        alone = [name for name in class_names if name in own]
        rest = tuple(name for name in class_names if name not in own)
        groups = [
            Group(
                (name,),
                (class_names.index(name),),
                self.targets.get(name, self.attainment),
            )
            for name in alone
        ]
        if rest:
            indices = tuple(class_names.index(name) for name in rest)
            groups.append(Group(rest, indices, self.attainment))
        return tuple(groups)

    def group_of(
        self, request_class: np.ndarray, class_names: tuple[str, ...]
    ) -> np.ndarray:
        """Return the index in ``groups`` of the group of each request, shape (n,)."""
        of_class = np.zeros(len(class_names), np.int64)
        for index, group in enumerate(self.groups(class_names)):
            of_class[list(group.indices)] = index
        return of_class[request_class]

    def overall_target(
        self, request_class: np.ndarray, class_names: tuple[str, ...]
    ) -> float:
        """Return the share of all requests that meet the SLO when every group does."""
        counts = np.bincount(request_class, minlength=len(class_names))
        wanted = sum(
            group.target * counts[list(group.indices)].sum()
            for group in self.groups(class_names)
        )
        return float(min(1.0, wanted / counts.sum()))

    def of_class(self, class_name: str) -> RequestSlo:
        """Return the limits of one class."""
        limits = self.by_class.get(class_name, self.default)
        if limits is None:
            known = ", ".join(sorted(self.by_class)) or "none"
            raise InputError(
                f"class {class_name!r} of the trace has no SLO; given: {known}"
            )
        return limits

    def strictest(self, class_names: tuple[str, ...] | None = None) -> RequestSlo:
        """Return the smallest limit of each kind over the classes, or over all."""
        if class_names is None:
            slos = [*self.by_class.values(), *([self.default] if self.default else [])]
        else:
            slos = [self.of_class(name) for name in class_names]
        return RequestSlo(
            *(
                min((slo.limit_s(name) for slo in slos), default=np.inf)
                for name in LIMITS
            )
        )

    def shared_limits_s(self, class_names: tuple[str, ...]) -> dict[str, float]:
        """Return the finite limits that are equal in all classes. [s]"""
        strictest = self.strictest(class_names)
        slos = [self.of_class(name) for name in class_names]
        return {
            name: limit_s
            for name in LIMITS
            if np.isfinite(limit_s := strictest.limit_s(name))
            and all(slo.limit_s(name) == limit_s for slo in slos)
        }

    def describe(self, class_names: tuple[str, ...]) -> str:
        """Return the limits of all classes on one line.

        Examples
        --------
        >>> parse_slo(["ttft=1s", "chat:tpot=30ms"]).describe(("chat", "code"))
        'chat: tpot ≤ 30 ms; code: ttft ≤ 1 s'
        """
        if len(class_names) == 1:
            return str(self.of_class(class_names[0]))
        return "; ".join(f"{name}: {self.of_class(name)}" for name in class_names)

    def columns(
        self, request_class: np.ndarray, class_names: tuple[str, ...]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return TTFT, TPOT and e2e limits, shape (n,) each. [s]"""
        slos = [self.of_class(name) for name in class_names]
        ttft_s, tpot_s, e2e_s = (
            np.array([slo.limit_s(name) for slo in slos])[request_class]
            for name in LIMITS
        )
        return ttft_s, tpot_s, e2e_s


def parse_slo(
    texts: str | Sequence[str],
    attainment: float = 0.99,
    targets: Mapping[str, float] | None = None,
    each_class: bool = True,
) -> Slo:
    """Return the SLO written as ``ttft=1s,tpot=30ms``, for one class ``chat:ttft=1s``.

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
    return Slo(default, attainment, by_class, targets or {}, each_class)


def _parse_limits(limits_text: str, text: str) -> RequestSlo:
    limits: dict[str, float] = {}
    for part in limits_text.split(","):
        name, equals, value = part.partition("=")
        name = name.strip()
        if not equals or name not in LIMITS:
            raise InputError(
                f"{text!r}: {part!r} is not a limit; "
                f"expected one of {', '.join(LIMITS)} as in ttft=1s,tpot=30ms"
            )
        if name in limits:
            raise InputError(f"{text!r}: {name} is given twice")
        try:
            limits[name] = parse_duration_s(value)
        except InputError as error:
            raise InputError(f"{text!r}: {name}: {error}") from None
    return RequestSlo(**{f"{name}_s": value for name, value in limits.items()})
