"""Draw requests as ServeGen does, from a folder of its clients.

https://github.com/alibaba/ServeGen at f891d118: ``chunk-N-trace.csv`` has the windows
of a client, ``chunk-N-dataset.json`` the lengths of its requests; drawn as in
``servegen/construct.py``, at the clients' own rates. A request's prompt and answer are
the same quantile of theirs, since ServeGen draws one random number for both.
"""

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from capplan.errors import InputError
from capplan.input_file import parse_json, read_text
from capplan.workload.arrivals import ArrivalProcess
from capplan.workload.readers.ordering import Notes, ordered_trace
from capplan.workload.trace import MAX_TOKENS, MOST_REQUESTS, Trace

PREFIX = "servegen:"
_GIVEN = re.compile(r"(.+?)(?:,start=(\d+))?(?:,end=(\d+))?")
_SPAN = "start=72000,end=75600"
_ONLY_WINDOW_S = 600.0


class _Window(NamedTuple):
    of_s: float  # begin of the client's window, by which its lengths are found
    start_s: float  # of its part in the span
    length_s: float
    requests: int
    process: ArrivalProcess


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder of clients."""
    return path.is_dir() and any(path.glob("chunk-*-trace.csv"))


def drawn(text: str, rng: np.random.Generator) -> Trace:
    """Return the requests written as ``servegen:FOLDER,start=72000,end=75600``.

    ``start`` and ``end`` are seconds of the folder's clock; by default all of it.
    """
    given = _GIVEN.fullmatch(text.removeprefix(PREFIX))
    folder = Path(given[1]) if given else Path()
    if given is None or not is_folder(folder):
        raise InputError(
            f"{text}: no chunk-*-trace.csv in {folder}; expected ServeGen's clients, "
            f"as in {PREFIX}data/language/m-small,{_SPAN}"
        )
    start_s, end_s = float(given[2] or 0), float(given[3] or np.inf)
    paths = sorted(folder.glob("chunk-*-trace.csv"))
    clients = [(path, _windows(path, start_s, end_s)) for path in paths]
    count = sum(window.requests for _, windows in clients for window in windows)
    if not 1 <= count <= MOST_REQUESTS:
        raise InputError(
            f"{text}: {count:,} requests; expected 1 to {MOST_REQUESTS:,}: name other "
            f"times, as in {PREFIX}{folder},{_SPAN}"
        )
    parts = [_client(path, windows, rng) for path, windows in clients if windows]
    requests = np.concatenate(parts, axis=1)
    at_s, prompt, output = requests[:, np.argsort(requests[0], kind="stable")]
    notes = Notes(folder)
    notes.add(f"drawn from the windows of {len(parts):,} clients", warn=False)
    tokens = {"prompt_tokens": prompt, "output_tokens": output}
    columns = {name: column.astype(np.int64) for name, column in tokens.items()}
    return ordered_trace(notes, at_s - start_s, ("all",), **columns)


def _windows(path: Path, start_s: float, end_s: float) -> list[_Window]:
    """Return the windows of a client that have requests in a span."""
    rows = [line.split(",") for line in read_text(path).split()]
    found = []
    try:
        starts_s = [float(row[0]) for row in rows]
        length_s = starts_s[1] - starts_s[0] if rows[1:] else _ONLY_WINDOW_S
        nexts_s = [*starts_s[1:], starts_s[-1] + length_s]
        for (_, rate, _, name, shape, _), of_s, next_s in zip(
            rows, starts_s, nexts_s, strict=True
        ):
            begin_s = max(of_s, start_s)
            length_s = max(min(next_s, end_s) - begin_s, 0.0)
            count = round(float(rate) * length_s)
            if name and count:
                process = _process(name, float(shape))
                found.append(_Window(of_s, begin_s, length_s, count, process))
    except (ValueError, TypeError, LookupError, ArithmeticError):
        raise InputError(
            f"{path}: not the windows of a client; expected lines of a start, a rate, "
            "a CV, Gamma or Weibull, its shape and its scale"
        ) from None
    return found


def _process(name: str, shape: float) -> ArrivalProcess:
    if name == "Gamma":
        return ArrivalProcess("gamma", {"cv": (min(max(shape**-0.5, 0.01), 100.0),)})
    return ArrivalProcess({"Weibull": "weibull"}[name], {"shape": (shape,)})


def _client(path: Path, windows: list[_Window], rng: np.random.Generator) -> np.ndarray:
    """Return arrivals [s], prompts and answers [tokens] of a client, shape (3, n)."""
    file = path.with_name(path.name.replace("-trace.csv", "-dataset.json"))
    fields = parse_json(file, read_text(file))
    parts = []
    try:
        # Where a distribution is empty, those before it hold.
        of = {float(k): v for k, v in fields.items() if "{}" not in v.values()}
        for window in windows:
            at_s = window.process.within_s(window.requests, window.length_s, rng)
            lengths = of[max(begin_s for begin_s in of if begin_s <= window.of_s)]
            quantile = rng.random(window.requests)
            keys = "input_tokens", "output_tokens"
            tokens = (_tokens(lengths[key], quantile) for key in keys)
            parts.append(np.array([window.start_s + at_s, *tokens]))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(
            f"{file}: lacks lengths of a window of {path.name}; expected input_tokens "
            'and output_tokens such as "{512: 0.25, 700: 0.75}", no images'
        ) from None
    return np.concatenate(parts, axis=1)


def _tokens(text: str, quantile: np.ndarray) -> np.ndarray:
    """Return the lengths at quantiles of ``{tokens: probability, ...}``, at least 1."""
    pairs = np.array(re.split("[:,]", text.strip(" {}")), float).reshape(-1, 2)
    tokens, share = pairs[np.argsort(pairs[:, 0])].T
    if not (0 <= tokens[0] <= tokens[-1] <= MAX_TOKENS and share.min() >= 0):
        raise ValueError(text)
    place = np.searchsorted(np.cumsum(share), quantile * share.sum())
    return np.maximum(tokens[np.minimum(place, len(tokens) - 1)], 1)
