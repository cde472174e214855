"""Make a load test's point of what its file states; collect what is wrong with it."""

import math
from typing import Any

from capplan.calibration.load_formats import NAMED, Fields, Format
from capplan.calibration.load_test import SweepPoint

_MOST: dict[str, float] = {"isl": 10_000_000, "osl": 10_000_000, "concurrency": 8192}
_MOST |= {"requests": 1_000_000, "rate_per_s": 1e6, "burstiness": math.inf}
_LEAST = {"rate_per_s": 1e-3, "burstiness": 0.01}
_LARGEST = 1e15
"""Number of a test in its own unit."""

_BY_USERS = {"concurrent", "concurrency", "concurrency_burst", "throughput"}
_SHAPES = {"": None, "poisson": 1.0, "gamma": None, "constant": math.inf}
"""Gamma shapes of the gaps between requests; None: as the test states, else 1."""

SATURATED = ": saturated"
"""End of why a test is left out that its engine could not keep up with."""
_SATURATED = 0.9
"""Completed over asked rate below which a backlog grew."""
_LITTLE = (0.7, 1.25)
"""Requests in the system by Little's law over the users, that are taken as the same."""
_MOST_FAILED = 0.1  # share of a test's requests
_FULL = 4  # requests per seat from which a test whose cap is reached is one of users
_TOTALS = {"isl": "prompt_tokens", "osl": "output_tokens"}
_MAY_BE_0 = ("failed", "done_per_s")


class PointReader:
    """Quantities of a test by its format; what is wrong with them is collected."""

    def __init__(self, kind: Format, fields: Fields) -> None:
        self.problems: dict[str, str] = {}  # by field
        self.row: dict[str, Any] = dict(kind.fixed)
        self.remarks: list[str] = []  # how the test is taken
        self.has_no_load = False
        self.unusable = ""  # why the run it is of gave no means
        self._kind, self._named = kind, dict[str, str]()
        for name, tried in kind.paths.items():
            found = [path for path in tried if fields.get(path) not in (None, "")]
            self._named[name] = (found or tried)[0]
            if any(field.startswith(tuple(f"{t}." for t in tried)) for field in fields):
                self._wrong(name, "is an object; expected a number")
            if found and (value := self._value(name, fields[found[0]])) is not None:
                self.row[name] = value
        for name, total in _TOTALS.items():
            self._named.setdefault(name, self._named.get(total, name))

    def _value(self, name: str, value: Any) -> Any:
        """Return a number, or the text that names how requests are sent."""
        if not isinstance(value, str | int | float):  # a list may be a deep nest
            self._wrong(name, f"is a {type(value).__name__}; expected a number")
            return None
        if name == "process":
            return str(value).lower()
        if name == "cancelled":
            if str(value).lower() == "true":
                self.unusable = f"was cancelled before its end ({self._named[name]})"
            return None
        try:
            is_number = not isinstance(value, bool) and "_" not in str(value)
            number = float(value) if is_number else math.nan
        except (ValueError, OverflowError):
            number = math.nan
        if name in ("rate_per_s", "burstiness") and number == math.inf:
            return number if name == "burstiness" else None  # all at once, or users
        if name in ("requests", "completed") and number == 0:
            self.unusable = "none of its requests completed"
        elif str(value).lower() == "nan":
            self.unusable = self.unusable or f"{self._named[name]} is NaN"
        elif math.isnan(number):
            self._wrong(name, f"is {str(value)[:40]!r}; expected a number")
        elif abs(number) > _LARGEST:
            self._wrong(name, f"is {number:g}; expected at most {_LARGEST:g}")
        elif name != "run" and (number < 0 or not (number or name in _MAY_BE_0)):
            self._wrong(name, f"is {number:g}; expected more than 0")
        else:
            return number
        return None

    def _wrong(self, name: str, reason: str) -> None:
        field = self._named.get(name, name)
        self.problems.setdefault(field, f"{field} {reason}")

    def _whole(self, name: str, value: float | None) -> int | None:
        if value is None:
            self._wrong(name, "is missing")
        elif not 1 <= value <= _MOST[name]:
            self._wrong(name, f"is {value:g}; expected 1 to {_MOST[name]:,}")
        else:
            return round(value)
        return None

    def _length(self, name: str) -> int | None:
        """Return a mean length, which some tools state as a sum over requests."""
        row, total = self.row, _TOTALS[name]
        if total in row and "requests" not in row:
            self._wrong("requests", "is missing")
            return None
        if total in row:
            row[name] = row[total] / row["requests"]
        return self._whole(name, row.get(name))

    def _time_s(self, name: str) -> float | None:
        in_ms = self.row.get(f"{name}_ms")
        return in_ms / 1e3 if in_ms is not None else self.row.get(f"{name}_s")

    def point(self, tp: int) -> tuple[SweepPoint | None, str]:
        """Return the point, and why it is to be left out; None where it is wrong."""
        row, requests = self.row, self.row.get("requests")
        isl, osl = self._length("isl"), self._length("osl")
        users, rate_per_s, shape, why = self._load()
        tpot_s, ttft_s = self._time_s("tpot"), self._time_s("ttft")
        if tpot_s is None and ttft_s is not None and "e2e_s" in row and (osl or 0) > 1:
            tpot_s = (row["e2e_s"] - ttft_s) / (row["osl"] - 1)
            if tpot_s <= 0:
                self._wrong(
                    "e2e_s", f"is {row['e2e_s']:g}; expected more than the TTFT"
                )
        per_s = row.get("output_tokens_per_s")
        if per_s is None and "output_tokens_per_s_per_gpu" in row:
            per_s = row["output_tokens_per_s_per_gpu"] * row.get("gpus", tp)
        share = row.get("range_ratio", 1.0)
        if share > 1:
            self._wrong("range_ratio", f"is {share:g}; expected at most 1")
        lacks = tpot_s is None and ttft_s is None and (per_s is None or rate_per_s)
        if lacks and not self.problems:
            either = "tpot and ttft" if rate_per_s else "tpot, ttft and output tokens/s"
            self.problems[either] = f"none of {either} is there"
        if tpot_s is not None and osl == 1:
            self._wrong("osl", "is 1, which has no TPOT; expected more")
        count = None if requests is None else self._whole("requests", requests)
        if self.problems or isl is None or osl is None:
            return None, ""
        point = SweepPoint(isl, osl, users, tpot_s, ttft_s, per_s, share)
        point = point._replace(
            requests=count, rate_per_s=rate_per_s, burstiness=shape or 1.0
        )
        return (point, why) if why else self._held_back(point)

    def _load(self) -> tuple[int | None, float | None, float | None, str]:
        """Return users, rate, the shape of its gaps, and why it is none to use."""
        row = self.row
        process, rate_per_s = row.get("process", ""), row.get("rate_per_s")
        users = row.get("concurrency")
        if row.get("run") == -1:
            return None, None, None, "a warm-up"
        if process in ("linear", "exponential"):
            return None, None, None, "its rate rises from start to end"
        if process == "synchronous":
            users = 1
        elif process == "throughput" and users is None:
            return None, None, None, "asks for all at once, without a limit of users"
        elif process not in _SHAPES and process not in _BY_USERS:
            self._wrong("process", f"is {process[:40]!r}; expected users or a rate")
        if process in _BY_USERS or process == "synchronous":
            rate_per_s = None
        if process == "throughput":
            self.remarks.append("a throughput test, of users at its limit")
        shape = _SHAPES.get(process) or row.get("burstiness")
        for name, value in (("rate_per_s", rate_per_s), ("burstiness", shape)):
            if value is not None and not _LEAST[name] <= value <= _MOST[name]:
                self._wrong(
                    name, f"is {value:g}; expected {_LEAST[name]:g} to {_MOST[name]:g}"
                )
        if users is None and rate_per_s is None and self._kind.at_once:
            users = row.get("requests")
            self.remarks.append("without users and rate, so all requests at once")
        loads = {self._named.get(name) for name in ("concurrency", "rate_per_s")}
        if any(str(load).startswith(NAMED) for load in loads):
            self.remarks.append(f"its users or rate are in {NAMED}")
        if rate_per_s is not None and shape not in (None, 1.0, math.inf):
            self.remarks.append(f"burstiness {shape:g}")
        if users is None and rate_per_s is None and not loads & self.problems.keys():
            self.has_no_load = True
            give = f"; give {self._kind.no_load}" if self._kind.no_load else ""
            self.problems["load"] = (
                f"states neither users ({self._named['concurrency']}) nor a rate "
                f"({self._named.get('rate_per_s', 'rate_per_s')}){give}"
            )
        whole = None if users is None else self._whole("concurrency", users)
        return whole, rate_per_s, shape, ""

    def _held_back(self, point: SweepPoint) -> tuple[SweepPoint, str]:
        """Return the point, and that fewer requests were answered than sent.

        A test of n requests lasts until its last is answered, for n ÷ rate and a stay.
        One that its cap holds back is a test of so many users.
        """
        done_per_s, rate_per_s = self.row.get("done_per_s"), point.rate_per_s
        if done_per_s is None and point.output_tokens_per_s is not None:
            done_per_s = point.output_tokens_per_s / point.mean_osl
        if rate_per_s is None or done_per_s is None:
            return point, ""
        count, stay_s = point.requests or math.inf, (point.tpot_s or 0) * point.mean_osl
        if done_per_s * (1 / rate_per_s + stay_s / count) >= _SATURATED:
            return point, ""
        if point.concurrency and count >= _FULL * point.concurrency:
            self.remarks = [f"held back by its cap, so {point.concurrency} users"]
            return point._replace(rate_per_s=None, burstiness=1.0), ""
        seen = f"{done_per_s:.3g} of {rate_per_s:.4g} requests/s answered"
        return point, f"{seen}{SATURATED}"


def failures(row: dict[str, Any]) -> str:
    """Return which share of a test's requests failed, where its load was another."""
    failed = row.get("failed", 0.0)
    share = failed / max(failed + row.get("completed", row.get("requests", 0.0)), 1)
    return f"{100 * share:.0f} % of its requests failed" if share > _MOST_FAILED else ""


def contradiction(point: SweepPoint, tp: int) -> str:
    """Return how throughput contradicts time and load by Little's law; else nothing."""
    if point.output_tokens_per_s is None or point.tpot_s is None:
        return ""
    given = f"{point.output_tokens_per_s:g} output tokens/s"
    done_per_s = point.output_tokens_per_s / point.mean_osl
    low, high = _LITTLE
    if point.rate_per_s is not None:
        if done_per_s <= high * point.rate_per_s:
            return ""
        return (
            f"{given} of {point.mean_osl:g} tokens each are {done_per_s:.3g} "
            f"requests/s; expected the rate, {point.rate_per_s:g}"
        )
    assert point.concurrency is not None
    e2e_s = (point.ttft_s or 0.0) + point.tpot_s * max(point.mean_osl - 1, 1)
    share = done_per_s * e2e_s / point.concurrency
    if low <= share <= high:
        return ""
    units = {
        f"is it per GPU? times TP {tp} it fits": tp,
        "are its times seconds? expected milliseconds": 1e3,
        "are its times microseconds? expected milliseconds": 1e-3,
    }
    hints = [f"; {hint}" for hint, x in units.items() if low <= share * x <= high]
    return (
        f"{given} at a TPOT of {point.tpot_s * 1e3:.4g} ms are "
        f"{share * point.concurrency:.3g} requests at once by Little's law; expected "
        f"the concurrency, {point.concurrency}{(hints or [''])[0]}"
    )
