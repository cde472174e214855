"""Conversations drawn from distributions, those of ``data/sessions.yaml``.

Sessions have no times: how many run at once, or at which rate they begin, is asked
elsewhere. Turns of a session are independent draws.
"""

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from capplan.errors import InputError
from capplan.input_file import parse_yaml, read_text
from capplan.workload.trace import MAX_TOKENS, Trace

_COUNT = re.compile(r"([a-z-]+)(?::n=(\d{1,6}))?")
_SUMMARY_TOKENS = 3000
"""Behind the text where a session goes on with a summary."""


@cache
def fits() -> dict[str, dict[str, Any]]:
    """Return the distributions of each workload of conversations."""
    path = Path(__file__).parent / "data/sessions.yaml"
    found: dict[str, dict[str, Any]] = parse_yaml(path, read_text(path))[0]
    return found


def is_named(text: str) -> bool:
    """Return whether a text is ``agents-coding`` or another, maybe with ``:n=``."""
    found = _COUNT.fullmatch(text)
    return found is not None and found[1] in fits()


def drawn(text: str, rng: np.random.Generator) -> Trace:
    """Return the sessions of a workload, of ``agents-coding:n=500`` so many.

    Examples
    --------
    >>> trace = drawn("chat-turns:n=3", np.random.default_rng(0))
    >>> int(trace.session.max()), trace.arrival_s
    (2, None)
    """
    name, _, count = text.partition(":n=")
    fit = fits()[name]
    sessions = int(count) if count else fit["sessions"]
    if not sessions:
        raise InputError(f"{text!r}: n is 0; expected 1 or more sessions")
    turns = _mixed(fit["turns"], sessions, rng)
    session = np.repeat(np.arange(sessions), turns)
    turn = np.arange(len(session)) - np.repeat(np.cumsum(turns) - turns, turns)
    output = _mixed(fit["output"], len(session), rng)
    prompt, prefix = _prompts(fit, turn, output, rng)
    think_s = np.minimum(_mixed(fit["think_s"], len(turn), rng), fit["most_think_s"])
    rows, is_first = np.arange(len(turn)), turn == 0
    with_text = is_first | (prefix < 0)  # those that start anew keep the text
    text_name, text_tokens = fit.get("text", ("", 0))
    shared = np.where(with_text, np.minimum(text_tokens, prompt), prefix)
    return Trace(
        prompt,
        output,
        parent=np.where(with_text, -1, rows - 1),
        prefix_group=np.where(with_text & (text_tokens > 0), 0, -1),
        prefix_tokens=shared,
        after=np.where(is_first, -1, rows - 1),
        think_s=np.where(is_first, 0.0, think_s),
        session=session,
        turn=turn,
        text_names=(text_name,) if text_name else (),
        source=text,
        notes=(f"{sessions:,} sessions drawn: {fit['source']}",),
    )


def _prompts(
    fit: dict[str, Any], turn: np.ndarray, output: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return prompts, and what they share with the turn before: -1, the text alone."""
    n = len(turn)
    first, new = (_mixed(fit[name], n, rng).tolist() for name in ("first", "new"))
    chance, kept = rng.random(n).tolist(), rng.random(n)
    share = np.ones(n)
    from_chance = restarts = fit.get("restarts", 0.0)
    for part, low, high in fit.get("cuts", ()):
        at = (np.array(chance) >= from_chance) & (np.array(chance) < from_chance + part)
        share[at] = low + (high - low) * kept[at]
        from_chance += part
    text_tokens = fit.get("text", ("", 0))[1]
    prompt, prefix = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for row in range(n):
        if turn[row] == 0:
            prompt[row] = first[row]
            continue
        before, answer = int(prompt[row - 1]), int(output[row - 1])
        if chance[row] < restarts:
            prompt[row], prefix[row] = text_tokens + _SUMMARY_TOKENS, -1
            continue
        holds = fit.get("new_holds_answer", False)
        prompt[row] = before + new[row] + (0 if holds else answer)
        whole = before + answer if prompt[row] >= before + answer else before
        prefix[row] = whole if share[row] == 1 else int(share[row] * before)
    return np.minimum(prompt, MAX_TOKENS), np.minimum(prefix, MAX_TOKENS)


def _mixed(parts: list[list[float]], n: int, rng: np.random.Generator) -> np.ndarray:
    """Return draws of a mixture of log-normals, whole and at least 1, shape (n,)."""
    weight, mu, sigma = np.array(parts).T
    part = rng.choice(len(weight), n, p=weight / weight.sum())
    values = rng.lognormal(mu[part], sigma[part])
    return np.clip(np.rint(values), 1, MAX_TOKENS).astype(np.int64)
