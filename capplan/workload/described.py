"""What was read of a trace, in one line."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from capplan.units import format_duration
from capplan.workload.readers.wrong_header import listed
from capplan.workload.trace import Trace

_HOUR_S = 3600.0


def described(trace: Trace) -> str:
    """Return what a trace holds and what of its source was left out.

    Examples
    --------
    >>> described(Trace([5], [7], left_out={"failed": 2}))
    '1 request without times of 5/7 tokens, 2 left out (2 failed), 1 class, no sessions'
    """
    unread = trace.unread_columns * ("columns not read" not in str(trace.notes))
    tally = Tally(Counter(trace.left_out), unread, trace.remarks)
    tally.add(trace, trace.clock_s)
    return str(tally)


@dataclass
class Tally:
    """What the traces of a file hold, one after the other."""

    left_out: Counter[str] = field(default_factory=Counter)
    unread_columns: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    requests: int = 0
    tokens: tuple[int, int] = (0, 0)  # of prompts and outputs
    first_s: float | None = None
    last_s: float = 0.0
    clock_s: float | None = None  # of the log at 0 s
    hours: Counter[float] = field(default_factory=Counter)  # requests in each
    class_names: tuple[str, ...] = ()
    sessions: set[int] = field(default_factory=set)
    turns: int = 0  # requests that arrive after answers

    def add(self, trace: Trace, clock_s: float | None) -> None:
        """Add requests that come after those before."""
        self.requests += len(trace)
        prompt, output = self.tokens
        prompt += int(trace.prompt_tokens.sum())
        self.tokens = prompt, output + int(trace.output_tokens.sum())
        self.class_names = trace.class_names
        self.sessions |= {*np.unique(trace.session).tolist()} - {-1}
        self.turns += int((trace.after >= 0).sum())
        if trace.arrival_s is not None:
            arrival_s = trace.arrival_s
            if trace.has_waits:
                arrival_s = np.sort(arrival_s[np.isfinite(arrival_s)])
            if self.first_s is None:
                self.first_s, self.clock_s = float(arrival_s[0]), clock_s
            self.last_s = float(arrival_s[-1])
            begin_s = self.first_s if self.clock_s is None else -self.clock_s
            hours = (arrival_s - begin_s) // _HOUR_S
            found = (each.tolist() for each in np.unique(hours, return_counts=True))
            self.hours.update(dict(zip(*found, strict=True)))

    def __str__(self) -> str:
        prompt, output = (count / max(self.requests, 1) for count in self.tokens)
        count = f"{self.requests:,} request{'s' * (self.requests != 1)}"
        parts = [f"{count} {self._times()} of {prompt:,.0f}/{output:,.0f} tokens"]
        if self.left_out:
            told = (f"{rows:,} {why}" for why, rows in sorted(self.left_out.items()))
            parts.append(f"{self.left_out.total():,} left out ({', '.join(told)})")
        parts += [*self._peak(), self._classes()]
        of = f"{len(self.sessions):,} session{'s' * (len(self.sessions) != 1)}"
        known = of if self.turns else f"{of} (used by --router session alone)"
        text = ", ".join([*parts, known if self.sessions else "no sessions"])
        text = "; ".join((text, *self.remarks))
        if self.unread_columns:
            text += f"; ignored columns: {listed(self.unread_columns)}"
        return text

    def _times(self) -> str:
        if self.first_s is None:
            return "without times"
        lasts_s = self.last_s - self.first_s
        if self.turns:
            return f"over {format_duration(lasts_s)}, {self.turns:,} after answers,"
        rate = f" ({(self.requests - 1) / lasts_s:.3g}/s)" if lasts_s > 0 else ""
        return f"over {format_duration(lasts_s)}{rate}"

    def _peak(self) -> list[str]:
        """Return the busiest hour of two or more, by the log's clock if it has one."""
        if self.first_s is None or self.last_s - self.first_s < 2 * _HOUR_S:
            return []
        hour = max(sorted(self.hours), key=self.hours.__getitem__)
        when = f"from {format_duration(hour * _HOUR_S)} on" if hour else "at the start"
        if self.clock_s is not None:
            is_long = self.last_s - self.first_s > 24 * _HOUR_S
            shown = "%a %Y-%m-%d %H:%M" if is_long else "%H:%M"
            when = f"at {datetime.fromtimestamp(hour * _HOUR_S, UTC):{shown}}"
        return [f"peak hour {self.hours[hour] / _HOUR_S:.3g}/s {when}"]

    def _classes(self) -> str:
        names = self.class_names
        if len(names) == 1:
            return "1 class" if names == ("all",) else f"1 class ({names[0]})"
        return f"{len(names):,} classes ({listed(names, 4)})"
