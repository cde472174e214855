"""Draw requests as a config of inference-perf does, from its sections data and load.

https://github.com/kubernetes-sigs/inference-perf at 7de5ef2e: keys and defaults as in
``config/``, lengths as in ``utils/numeric/distribution``, arrivals as in
``loadgen/load_timer.py``: the gaps of a ``constant`` load are exponential too, and
scaled so that a stage has rate × duration requests.
"""

from pathlib import Path
from typing import Any

import numpy as np

from capplan.errors import InputError, placed
from capplan.workload.arrivals import MOST_RATE_PER_S, ArrivalProcess
from capplan.workload.lengths import LENGTHS
from capplan.workload.readers.ordering import Notes, ordered_trace
from capplan.workload.synthesis import DEFAULT_REQUESTS
from capplan.workload.trace import MAX_TOKENS, MOST_REQUESTS, Trace

_Range = tuple[float | None, float, float]
"""A default, or None where a number must be given; the least and the most."""

_DATA = "type input_distribution output_distribution shared_prefix path "
_DATA += "corpus_file_path use_chat_template"
_LOAD = "type stages sweep num_workers worker_max_concurrency base_seed "
_LOAD += "worker_max_tcp_connections circuit_breakers request_timeout"
_SHARED = "system_prompt_len question_len output_len seed "
_SHARED += "question_distribution output_distribution"
_LENGTHS: dict[str, _Range] = {
    "min": (10, 0, MAX_TOKENS),
    "max": (1024, 0, MAX_TOKENS),
    "mean": (512, 0, MAX_TOKENS),
    "std_dev": (200, 0, MAX_TOKENS),
    "variance": (0, 0, MAX_TOKENS**2),
    "skew": (0, -1e6, 1e6),
}
_GROUPS: dict[str, _Range] = {"num_groups": (10, 1, 1e6)}
_GROUPS["num_prompts_per_group"] = (10, 1, 1e6)
_NEWER = {"num_unique_system_prompts": "num_groups"}
_NEWER["num_users_per_system_prompt"] = "num_prompts_per_group"
_OPEN: dict[str, _Range] = {"rate": (None, 1e-6, MOST_RATE_PER_S)}
_OPEN["duration"] = (None, 1, 1e7)
_CLOSED: dict[str, _Range] = {"num_requests": (None, 1, MOST_REQUESTS)}
_CLOSED["concurrency_level"] = (None, 1, 1e6)


def is_config(fields: dict[str, Any]) -> bool:
    """Return whether a YAML has the sections of a config."""
    return isinstance(fields.get("data"), dict) and "file" not in fields


def drawn(path: str | Path, fields: dict[str, Any], rng: np.random.Generator) -> Trace:
    """Return the requests that a config asks for, with the times of its stages."""
    notes = Notes(path)
    notes.add("drawn as its sections data and load say", warn=False)
    with placed(path):
        data = _read("data", fields["data"], {}, _DATA)
        kind = _name("data.type", data, "mock", "synthetic random shared_prefix")
        counts, arrival_s = _stages(fields.get("load", {}), rng, notes)
        if kind == "shared_prefix":
            columns = _shared(data.get("shared_prefix"), counts, rng, notes)
        else:
            prompt, output = (
                _lengths(f"data.{key}", data.get(key), sum(counts), rng, shared=False)
                for key in ("input_distribution", "output_distribution")
            )
            columns = {"prompt_tokens": prompt, "output_tokens": output}
    return ordered_trace(notes, arrival_s, **columns)


def _read(
    where: str, fields: Any, numbers: dict[str, _Range], others: str = ""
) -> dict[str, Any]:
    """Return the fields of a mapping, its numbers checked; others may be any."""
    if not isinstance(fields, dict):
        raise InputError(f"{where} is no mapping; expected keys with values")
    for key, value in fields.items():
        if key not in (*numbers, *others.split()) and value not in (None, False, []):
            raise InputError(f"{where}.{key} is not modelled; expected none")
    given = {key: value for key, value in fields.items() if value is not None}
    found = {key: range_[0] for key, range_ in numbers.items()} | given
    for key, (_, least, most) in numbers.items():
        if type(found[key]) not in (int, float) or not least <= found[key] <= most:
            raise InputError(
                f"{where}.{key} is {found[key]!r:.60}; expected a number from "
                f"{least:g} to {most:g}"
            )
    return found


def _name(where: str, fields: dict[str, Any], default: str, names: str) -> str:
    value = fields.get("type", default)
    if value not in names.split():
        known = ", ".join(names.split())
        remedy = "; a file of requests goes to --trace" * (where == "data.type")
        raise InputError(
            f"{where} {value!r:.60} is not modelled; expected {known}{remedy}"
        )
    return str(value)


def _lengths(
    where: str, value: Any, n: int, rng: np.random.Generator, *, shared: bool
) -> np.ndarray:
    """Return n lengths as a distribution or a number says, at least 1. [tokens]"""
    if shared and type(value) is int:
        value = {"type": "fixed", "mean": value}
    given = _read(where, value, _LENGTHS, "type total_count")
    kinds = "normal lognormal uniform fixed" + shared * " skew_normal poisson"
    kind = _name(f"{where}.type", given, "normal", kinds)
    low, high, mean = given["min"], given["max"], given["mean"]
    if kind == "fixed":
        return np.full(n, max(1, int(mean)))
    if low > high or (kind == "normal" and not (shared or low <= mean <= high)):
        raise InputError(
            f"{where} has min {low:g}, mean {mean:g} and max {high:g}; expected them "
            "to rise"
        )
    deviation = given["variance"] ** 0.5 or given["std_dev"]
    if kind == "skew_normal":
        from scipy.stats import skewnorm

        drawn = skewnorm.rvs(given["skew"], mean, deviation, n, random_state=rng)
    elif kind == "poisson":
        drawn = rng.poisson(mean, n)
    else:
        # The tool has two lognormals: of a shared prefix, and of what exceeds min.
        base = low if kind == "lognormal" and not shared else 0
        above = mean - base if mean > base else 1.0
        spread = 1 + (deviation / above) ** 2
        parameters = {"low": low, "high": high, "mean": mean, "sd": deviation}
        parameters |= {"median": above / spread**0.5, "sigma": np.log(spread) ** 0.5}
        drawn = base + LENGTHS[kind].draw(parameters, n, rng)
    return np.clip(np.rint(drawn), max(low, 1), max(high, 1)).astype(np.int64)


def _stages(
    fields: Any, rng: np.random.Generator, notes: Notes
) -> tuple[list[int], np.ndarray | None]:
    """Return the requests of each stage, and all arrivals where it has rates. [s]"""
    load = _read("load", fields, {"interval": (1, 0, 1e7)}, _LOAD)
    kind = _name("load.type", load, "constant", "constant poisson concurrent")
    if load.get("sweep"):
        notes.add("load.sweep takes its rates from a server: give --rate")
        return [DEFAULT_REQUESTS], None
    closed = kind == "concurrent"
    stages = load.get("stages")
    numbers = _CLOSED if closed else _OPEN
    stages = [
        [_read(f"load.stages.{k}", stage, numbers)[key] for key in numbers]
        for k, stage in enumerate(stages if isinstance(stages, list) else [])
    ]
    counts = [int(stage[0] * (1 if closed else stage[1])) for stage in stages]
    if not 1 <= sum(counts) <= MOST_REQUESTS:
        raise InputError(
            f"load.stages have {sum(counts):,} requests; expected 1 to "
            f"{MOST_REQUESTS:,}"
        )
    if closed:
        users = ", ".join(f"{level:g}" for _, level in stages)
        notes.add(f"load.stages have {users} users: give --users with one of them")
        return counts, None
    poisson, begin_s, parts = ArrivalProcess("poisson"), 0.0, []
    for count, (rate_per_s, duration_s) in zip(counts, stages, strict=True):
        at_s = np.zeros(0)
        if count and kind == "poisson":
            at_s = poisson.arrivals_s(count, rate_per_s, rng)
        elif count:
            at_s = poisson.within_s(count, duration_s, rng)
        parts.append(begin_s + at_s)
        begin_s += max(duration_s, *at_s[-1:]) + load["interval"]
    return counts, np.concatenate(parts)


def _shared(
    fields: Any, counts: list[int], rng: np.random.Generator, notes: Notes
) -> dict[str, Any]:
    """Return prompts that begin with the system prompt of their group, and answers.

    Each stage asks for the same prompts in the same order, again and again.
    """
    where = "data.shared_prefix"
    if isinstance(fields, dict):
        fields = {_NEWER.get(key, key): value for key, value in fields.items()}
    shape = _read(where, fields, _GROUPS, _SHARED)
    each = int(shape["num_prompts_per_group"])
    if (n := int(shape["num_groups"]) * each) > MOST_REQUESTS:
        raise InputError(
            f"{where} has {n:,} prompts; expected at most {MOST_REQUESTS:,}"
        )
    usual = {"system_prompt": 100, "question": 50, "output": 50}
    system, question, output = (
        _lengths(
            f"{where}.{name}",
            shape.get(f"{name}_distribution", shape.get(f"{name}_len", length)),
            n // each if name == "system_prompt" else n,
            rng,
            shared=True,
        )
        for name, length in usual.items()
    )
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
