"""Draw requests as a config of inference-perf does, from its sections data and load.

https://github.com/kubernetes-sigs/inference-perf at 7de5ef2e: keys and defaults as in
``config/``, lengths as in ``utils/numeric/distribution``, arrivals as in
``loadgen/load_timer.py``: the gaps of a ``constant`` load are exponential too, and
scaled so that a stage has rate × duration requests.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from capplan.errors import InputError
from capplan.workload.arrivals import MOST_RATE_PER_S, ArrivalProcess
from capplan.workload.lengths import LENGTHS
from capplan.workload.readers.ordering import Notes, ordered_trace
from capplan.workload.synthesis import DEFAULT_REQUESTS
from capplan.workload.trace import MAX_TOKENS, MOST_REQUESTS, Trace

_DATA = """type input_distribution output_distribution shared_prefix path
    corpus_file_path use_chat_template"""
_SHARED = """num_unique_system_prompts num_groups num_users_per_system_prompt seed
    num_prompts_per_group system_prompt_len question_len question_distribution
    output_len output_distribution"""
_LOAD = """type interval stages sweep num_workers worker_max_concurrency base_seed
    worker_max_tcp_connections circuit_breakers request_timeout"""
_LENGTHS = {"min": 10, "max": 1024, "mean": 512, "std_dev": 200}


@dataclass(frozen=True)
class _Section:
    """A mapping of a config; a wrong value is an InputError that names its key."""

    where: str
    fields: Any
    keys: str  # that may stand in it, parted by blanks

    def __post_init__(self) -> None:
        if not isinstance(self.fields, dict):
            raise InputError(f"{self.where} is no mapping; expected keys with values")
        for key, value in self.fields.items():
            if key not in self.keys.split() and value not in (None, False, [], {}):
                raise InputError(f"{self.where}.{key} is not modelled; expected none")

    def inner(self, key: str, keys: str) -> "_Section":
        """Return the mapping that stands under a key."""
        return _Section(f"{self.where}.{key}", self.fields.get(key), keys)

    def number(
        self, key: str, default: float | None, most: float, least: float = 0
    ) -> float:
        """Return a number in a range."""
        value = self.fields.get(key, default)
        if type(value) not in (int, float) or not least <= value <= most:
            raise InputError(
                f"{self.where}.{key} is {value!r:.60}; expected a number from "
                f"{least:g} to {most:g}"
            )
        return float(value)

    def choice(self, key: str, default: str, names: str, remedy: str = "") -> str:
        """Return one of some names."""
        value = self.fields.get(key, default)
        if value not in names.split():
            raise InputError(
                f"{self.where}.{key} {value!r:.60} is not modelled; expected one of "
                f"{', '.join(names.split())}{remedy}"
            )
        return str(value)

    def lengths(
        self, key: str, n: int, rng: np.random.Generator, default: int | None = None
    ) -> np.ndarray:
        """Return n lengths drawn as a key says, whole and at least 1. [tokens]

        With a ``default``, of a shared prefix, the key may hold one length.
        """
        shared = default is not None
        if shared and not isinstance(self.fields.get(key), dict):
            return np.full(n, max(1, int(self.number(key, default, MAX_TOKENS))))
        given = self.inner(key, " ".join(_LENGTHS) + " type variance skew total_count")
        low, high, mean, deviation = (
            given.number(name, usual, MAX_TOKENS) for name, usual in _LENGTHS.items()
        )
        if given.fields.get("variance") is not None:
            deviation = given.number("variance", None, MAX_TOKENS**2) ** 0.5
        kinds = "normal lognormal uniform fixed" + shared * " skew_normal poisson"
        kind = given.choice("type", "normal", kinds)
        if kind == "fixed":
            return np.full(n, max(1, int(mean)))
        if low > high or (kind == "normal" and not (shared or low <= mean <= high)):
            raise InputError(
                f"{given.where} has min {low:g}, mean {mean:g} and max {high:g}; "
                "expected them to rise"
            )
        base, parameters = 0.0, {"mean": mean, "sd": deviation}
        if kind == "uniform":
            parameters = {"low": low, "high": high}
        elif kind == "lognormal":  # the tool's own two ways
            base = 0.0 if shared else low
            above = mean - base if mean > base else 1.0
            spread = 1 + (deviation / above) ** 2
            parameters = {"median": above / spread**0.5, "sigma": np.log(spread) ** 0.5}
        if kind == "skew_normal":
            from scipy.stats import skewnorm

            skew = given.number("skew", 0, 1e6, -1e6)
            drawn = skewnorm.rvs(skew, mean, deviation, n, random_state=rng)
        elif kind == "poisson":
            drawn = rng.poisson(mean, n)
        else:
            drawn = LENGTHS[kind].draw(parameters, n, rng)
        lengths = np.clip(np.rint(drawn + base), max(low, 1), max(high, 1))
        return lengths.astype(np.int64)


def is_config(fields: dict[str, Any]) -> bool:
    """Return whether a YAML has the sections of a config."""
    return isinstance(fields.get("data"), dict) and "file" not in fields


def drawn(path: str | Path, fields: dict[str, Any], rng: np.random.Generator) -> Trace:
    """Return the requests that a config asks for, with the times of its stages."""
    notes = Notes(path)
    notes.add("drawn as its sections data and load say", warn=False)
    data = _Section(f"{path}: data", fields["data"], _DATA)
    load = _Section(f"{path}: load", fields.get("load", {}), _LOAD)
    kinds, remedy = "synthetic random shared_prefix", "; requests of a file: --trace"
    kind = data.choice("type", "mock", kinds, remedy)
    counts, arrival_s = _stages(load, rng, notes)
    columns: dict[str, Any]
    if kind == "shared_prefix":
        columns = _shared(data.inner("shared_prefix", _SHARED), counts, rng, notes)
    else:
        columns = {
            f"{name}_tokens": data.lengths(f"{key}_distribution", sum(counts), rng)
            for name, key in (("prompt", "input"), ("output", "output"))
        }
    return ordered_trace(notes, arrival_s, **columns)


def _stages(
    load: _Section, rng: np.random.Generator, notes: Notes
) -> tuple[list[int], np.ndarray | None]:
    """Return the requests of each stage, and all arrivals where it has rates. [s]"""
    kind = load.choice("type", "constant", "constant poisson concurrent")
    if load.fields.get("sweep"):
        notes.add("load.sweep takes its rates from a server: give --rate")
        return [DEFAULT_REQUESTS], None
    keys = "num_requests concurrency_level" if kind == "concurrent" else "rate duration"
    stages = load.fields.get("stages")
    stages = [
        _Section(f"{load.where}.stages.{k}", stage, keys)
        for k, stage in enumerate(stages if isinstance(stages, list) else [])
    ]
    most = {"num_requests": MOST_REQUESTS, "rate": MOST_RATE_PER_S}
    first, second = (
        [stage.number(key, None, most.get(key, 1e7), 1e-6) for stage in stages]
        for key in keys.split()
    )
    if kind == "concurrent":
        users = ", ".join(f"{level:g}" for level in second)
        notes.add(f"load.stages have {users} users: give one as --users")
        counts = [int(count) for count in first]
    else:
        counts = [int(rate * s) for rate, s in zip(first, second, strict=True)]
    if not 1 <= sum(counts) <= MOST_REQUESTS:
        raise InputError(
            f"{load.where}.stages have {sum(counts):,} requests; expected 1 to "
            f"{MOST_REQUESTS:,}"
        )
    if kind == "concurrent":
        return counts, None
    poisson, begin_s, parts = ArrivalProcess("poisson"), 0.0, []
    for count, rate_per_s, duration_s in zip(counts, first, second, strict=True):
        at_s = np.zeros(0)
        if count and kind == "poisson":
            at_s = poisson.arrivals_s(count, rate_per_s, rng)
        elif count:
            at_s = poisson.within_s(count, duration_s, rng)
        parts.append(begin_s + at_s)
        begin_s += max(duration_s, *at_s[-1:]) + load.number("interval", 1, 1e7)
    return counts, np.concatenate(parts)


def _shared(
    shape: _Section, counts: list[int], rng: np.random.Generator, notes: Notes
) -> dict[str, np.ndarray]:
    """Return prompts that begin with the system prompt of their group, and answers.

    Each stage asks for the same prompts in the same order, again and again.
    """
    groups, each = (
        int(shape.number(new if new in shape.fields else old, 10, 1e6, 1))
        for new, old in (
            ("num_unique_system_prompts", "num_groups"),
            ("num_users_per_system_prompt", "num_prompts_per_group"),
        )
    )
    if (n := groups * each) > MOST_REQUESTS:
        raise InputError(f"{shape.where} has {n:,} prompts; expected fewer")
    system = shape.lengths("system_prompt_len", groups, rng, 100)
    keys = {
        name: f"{name}_distribution"
        if shape.fields.get(f"{name}_distribution")
        else f"{name}_len"
        for name in ("question", "output")
    }
    question, output = (shape.lengths(key, n, rng, 50) for key in keys.values())
    order = rng.permutation(n)
    rows = np.concatenate([order[np.arange(count) % n] for count in counts])
    group = rows // each
    if max(counts) > n:
        notes.add(f"{n:,} prompts come again: only their system prompts count as hits")
    return {
        "prompt_tokens": system[group] + question[rows],
        "output_tokens": output[rows],
        "prefix_group": group,
        "prefix_tokens": system[group],
    }
