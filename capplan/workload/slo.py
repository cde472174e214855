"""Service level objectives: latency limits and the share of requests to meet them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from capplan.errors import InputError, placed
from capplan.units import format_duration, parse_duration_s

LIMITS = ("ttft", "tpot", "tbt", "e2e")
"""Times of a request that an SLO may limit."""

TURN, FIRST = "turn", "first"
"""Classes of later turns of conversations and of the first, where they have limits."""
SCOPES = ("request", "session")
"""What else than turns of conversations limits may be of: what a user asks until the
last tool has been answered, and all of it."""

_OF_SCOPES = re.compile(f",(?=(?:{'|'.join((TURN, FIRST, *SCOPES))}):)")
"""Commas between limits of turns and of what else a conversation has."""

SAME = {"jct": "e2e"}
"""Other names of LIMITS: job completion time."""

_OWN = re.compile(
    r"(.+)/((?:(?:{0})=[^,/]+s)(?:,(?:{0})=[^,/]+s)*)".format("|".join(LIMITS))
)


@dataclass(frozen=True)
class RequestSlo:
    """Limits on one request; infinite where there is none.

    A request meets its SLO when TTFT, TPOT (mean over the request: ATGT of Aladdin,
    section 2.2), every gap between two of its tokens (TBT) and end-to-end time are
    within limits. A one-token output has neither TPOT nor TBT.
    """

    ttft_s: float = float("inf")
    tpot_s: float = float("inf")
    tbt_s: float = float("inf")
    e2e_s: float = float("inf")  # arrival to last token

    def __post_init__(self) -> None:
        for name in LIMITS:
            if not self.limit_s(name) > 0:
                raise InputError(
                    f"SLO {name} is {self.limit_s(name)} s; expected more than 0"
                )

    @property
    def mean_gap_s(self) -> float:
        """Limit of the mean gap between tokens, which is at most the longest. [s]"""
        return min(self.tpot_s, self.tbt_s)

    def limit_s(self, name: str) -> float:
        """Return one of LIMITS. [s]"""
        return float(getattr(self, f"{name}_s"))

    def __str__(self) -> str:
        """Return ``ttft ≤ 1 s, tpot ≤ 30 ms``."""
        return _ranges([self])


@dataclass(frozen=True)
class Group:
    """Classes of a trace that attain one target together."""

    names: tuple[str, ...]
    indices: tuple[int, ...]  # of the classes in the trace
    target: float  # share of their requests that must meet their limits, in (0, 1]


@dataclass(frozen=True)
class Slo:
    """Limits of every class of a trace and the share of requests to meet them.

    A class called ``chat/ttft=0.5s`` has the limits of ``chat`` but for those in its
    name: so requests have limits of their own.
    """

    default: RequestSlo | None  # None when every class must have its own
    attainment: float = 0.99  # in (0, 1]
    by_class: Mapping[str, RequestSlo] = field(default_factory=dict)
    targets: Mapping[str, float] = field(default_factory=dict)  # of classes
    each_class: bool = True  # a class with limits or a target of its own is a group
    # In every window of this length, infinite for the whole trace; None for every hour
    # of a trace of two hours or more with times of its own. [s]
    attain_in_s: float | None = None

    def __post_init__(self) -> None:
        for share in (self.attainment, *self.targets.values()):
            if not 0 < share <= 1:
                raise InputError(
                    f"attainment is {share}; expected more than 0 and at most 1"
                )
        if self.targets and not self.each_class:
            raise InputError(
                "attainment is given by class and of all requests; expected one of them"
            )

    @property
    def scopes(self) -> tuple[str, ...]:
        """Those of SCOPES that have limits."""
        return tuple(name for name in SCOPES if name in self.by_class)

    @property
    def _first_is_free(self) -> bool:
        """Whether first turns of conversations have no limits."""
        return self.by_class.get(FIRST) == RequestSlo()

    @property
    def of_conversations(self) -> tuple[str, ...]:
        """What has limits that only a conversation has."""
        return (FIRST,) * (FIRST in self.by_class) + self.scopes

    def groups(self, class_names: tuple[str, ...]) -> tuple[Group, ...]:
        """Return the groups of classes that each attain their target."""
        names, base = base_classes(class_names)
        for name in self.targets:
            if name not in (*names, *self.scopes):
                known = ", ".join(names)
                raise InputError(
                    f"attainment: no class {name!r} in the trace, which has {known}"
                )
        own = {*self.by_class, *self.targets} if self.each_class else set()
        judged = [name for name in names if not (name == FIRST and self._first_is_free)]
        alone = [(name,) for name in judged if name in own]
        rest = tuple(name for name in judged if name not in own)
        groups = []
        for of in [*alone, rest] if rest else alone:
            is_in = np.isin(base, [names.index(name) for name in of])
            indices = tuple(np.flatnonzero(is_in).tolist())
            groups.append(Group(of, indices, self.targets.get(of[0], self.attainment)))
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
        if class_name in self.by_class:
            return self.by_class[class_name]
        name, own = own_limits(class_name)
        limits = self.by_class.get(name, self.default)
        if limits is not None or own:
            return replace(limits or RequestSlo(), **own)
        known = ", ".join(sorted(self.by_class)) or "none"
        raise InputError(
            f"class {class_name!r} of the trace has no SLO; given: {known}"
        )

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
        table_s = self.table(class_names)
        return {
            name: float(limit_s[0])
            for name, limit_s in zip(LIMITS, table_s.T, strict=True)
            if np.isfinite(limit_s[0]) and (limit_s == limit_s[0]).all()
        }

    def describe(self, class_names: tuple[str, ...]) -> str:
        """Return the limits of all classes on one line.

        Examples
        --------
        >>> parse_slo(["ttft=1s", "chat:tpot=30ms"]).describe(("chat", "code"))
        'chat: tpot ≤ 30 ms; code: ttft ≤ 1 s'
        """
        class_names = (*class_names, *self.scopes)
        names, base = base_classes(class_names)
        texts = []
        for k, name in enumerate(names):
            rows = np.flatnonzero(base == k)
            if name == FIRST and self._first_is_free:
                continue
            text = _ranges([self.of_class(class_names[row]) for row in rows])
            texts.append(text if len(names) == 1 else f"{name}: {text}")
        return "; ".join(texts)

    def shared_target(self, class_names: tuple[str, ...]) -> float:
        """Return the share asked of all together, or of classes without their own."""
        groups = self.groups(class_names)
        return groups[0].target if len(groups) == 1 else self.attainment

    def describe_targets(self, class_names: tuple[str, ...]) -> str:
        """Return the share asked, of each class that has a target of its own.

        Examples
        --------
        >>> parse_slo("ttft=1s", targets={"chat": 0.95}).describe_targets(
        ...     ("chat", "code")
        ... )
        '95 % of chat, 99 % of code'
        """
        groups = self.groups((*class_names, *self.scopes))
        if len({group.target for group in groups}) == 1 and self.of_conversations:
            return _percent(groups[0].target)
        if len(groups) == 1:
            return _percent(groups[0].target)
        if len(groups) > _GROUPS_NAMED:
            targets = sorted({group.target for group in groups})
            ends = dict.fromkeys(map(_percent, (targets[0], targets[-1])))
            return f"{' to '.join(ends)} of each of {len(groups):,} groups of classes"
        return ", ".join(
            f"{_percent(group.target)} of {' and '.join(group.names)}"
            for group in groups
        )

    def table(self, class_names: tuple[str, ...]) -> np.ndarray:
        """Return LIMITS of each class, infinite where none, shape (classes, 4). [s]"""
        slos = [self.of_class(name) for name in class_names]
        return np.array([[slo.limit_s(name) for name in LIMITS] for slo in slos])

    def columns(
        self, request_class: np.ndarray, class_names: tuple[str, ...]
    ) -> tuple[np.ndarray, ...]:
        """Return LIMITS of each request, infinite where none, shape (n,) each. [s]"""
        return tuple(column[request_class] for column in self.table(class_names).T)


def require(
    slo: Slo | None,
    class_names: tuple[str, ...],
    kinds: Sequence[str],
    who: str,
    instead: str = "",
) -> None:
    """Refuse classes without a limit that a policy needs.

    ``kinds`` are some of LIMITS, ``who`` names the policy: ``scheduler accelgen``. A
    class with the limit ``instead`` needs none of them.
    """

    def has(name: str, kind: str) -> bool:
        return slo is not None and np.isfinite(slo.of_class(name).limit_s(kind))

    for name in class_names if kinds else ():
        if instead and has(name, instead):
            continue
        for kind in kinds:
            if not has(name, kind):
                other = f", or on {instead}," if instead else ""
                of = f"{own_limits(name)[0]}:" if len(class_names) > 1 else ""
                raise InputError(
                    f"{who} needs a limit on {kind}{other} for each class; class "
                    f"{name!r} has none, expected one such as --slo {of}{kind}=1s"
                )


@lru_cache(2**16)
def own_limits(class_name: str) -> tuple[str, dict[str, float]]:
    """Return a class without the limits in its name, and these limits. [s]

    Examples
    --------
    >>> own_limits("chat/ttft=0.5s"), own_limits("a/b")
    (('chat', {'ttft_s': 0.5}), ('a/b', {}))
    """
    found = _OWN.fullmatch(class_name)
    if found is None:
        return class_name, {}
    return found[1], _parse_limits(found[2], class_name)


def base_classes(class_names: tuple[str, ...]) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the classes without limits in their names, and which of them each is.

    Examples
    --------
    >>> base_classes(("chat/ttft=1s", "chat/ttft=2s", "code"))
    (('chat', 'code'), array([0, 0, 1]))
    """
    index: dict[str, int] = {}
    base = [index.setdefault(own_limits(name)[0], len(index)) for name in class_names]
    return tuple(index), np.array(base)


_GROUPS_NAMED = 4
"""Groups of classes whose targets a sentence names."""


def _percent(share: float) -> str:
    return f"{share * 100:.6g} %"


def _ranges(slos: Sequence[RequestSlo]) -> str:
    """Return the limits of one class as text, from least to most."""
    texts = []
    for name in LIMITS:
        limits_s = np.unique([slo.limit_s(name) for slo in slos])
        finite_s = limits_s[np.isfinite(limits_s)]
        if finite_s.size:
            ends = dict.fromkeys(map(format_duration, (finite_s[0], finite_s[-1])))
            none = " or none" if finite_s.size < limits_s.size else ""
            texts.append(f"{name} ≤ {' to '.join(ends)}{none}")
    return ", ".join(texts) or "no limits"


def parse_slo(
    texts: str | Sequence[str],
    attainment: float = 0.99,
    targets: Mapping[str, float] | None = None,
    each_class: bool = True,
) -> Slo:
    """Return the SLO written as ``ttft=1s,tpot=30ms``, for one class ``chat:ttft=1s``.

    ``trace`` stands for the requests' own limits, and none besides. ``turn:ttft=1s`` is
    of every turn but the first of a conversation.

    Examples
    --------
    >>> parse_slo("ttft=1s,tpot=30ms").default
    RequestSlo(ttft_s=1.0, tpot_s=0.03, tbt_s=inf, e2e_s=inf)
    """
    default: RequestSlo | None = None
    by_class: dict[str, RequestSlo] = {}
    given = [texts] if isinstance(texts, str) else texts
    for text in (part for each in given for part in _OF_SCOPES.split(each)):
        if text.strip() == "trace":
            continue
        class_name, colon, limits_text = text.rpartition(":")
        limits = RequestSlo(**_parse_limits(limits_text, text))
        if colon and class_name.strip() == TURN:
            default = limits
            by_class.setdefault(FIRST, RequestSlo())
        elif colon:
            by_class[class_name.strip()] = limits
        else:
            default = limits
    if default is None and by_class and by_class.keys() <= {FIRST, *SCOPES}:
        default = RequestSlo()
    return Slo(default, attainment, by_class, targets or {}, each_class)


def scaled_slo(text: str, times: float) -> str:
    """Return the text of an SLO with all limits times a number.

    Examples
    --------
    >>> scaled_slo("chat:ttft=1s,tpot=30ms", 0.8), scaled_slo("trace", 1)
    ('chat:ttft=0.8s,tpot=0.024s', 'trace')
    """
    if text.strip() == "trace":
        return text
    class_name, colon, limits_text = text.rpartition(":")
    limits = [
        f"{name.removesuffix('_s')}={limit_s * times:.12g}s"
        for name, limit_s in _parse_limits(limits_text, text).items()
    ]
    return f"{class_name}{colon}{','.join(limits)}"


def _parse_limits(limits_text: str, text: str) -> dict[str, float]:
    """Return limits by the names of RequestSlo's fields. [s]"""
    limits: dict[str, float] = {}
    for part in limits_text.split(","):
        given, equals, value = part.partition("=")
        given = given.strip()
        name = SAME.get(given, given)
        if not equals or name not in LIMITS:
            raise InputError(
                f"{text!r}: {part!r} is not a limit; expected one of "
                f"{', '.join((*LIMITS, *SAME))} as in ttft=1s,tpot=30ms"
            )
        if f"{name}_s" in limits:
            alike = next((f" ({k} is {v})" for k, v in SAME.items() if v == name), "")
            raise InputError(f"{text!r}: {name} is given twice{alike}")
        with placed(f"{text!r}: {given}"):
            limits[f"{name}_s"] = parse_duration_s(value)
    return limits
