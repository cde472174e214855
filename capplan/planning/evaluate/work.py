"""Whose work a fleet does: replica time by class of request, and by replica."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from capplan.deployment.pools import Deployment
from capplan.latency.contract import LatencyTables
from capplan.simulator.results.request_times import RequestTimes
from capplan.simulator.results.times import Series, Simulation
from capplan.workload.slo import base_classes


@dataclass(frozen=True)
class Work:
    """Parts of the replica time that a simulation's requests take.

    By :func:`prompt_s` and :func:`answer_s`; of two pools each counts by its GPUs'
    price, so that the parts of the classes are parts of the bill.
    """

    class_shares: dict[str, float]  # by class; together 1
    # of the replica with most of it, over the mean; None of two pools, or where
    # requests move between replicas
    busiest_share_of_mean: float | None
    prompt_share: float  # of the prompts; the rest is of the answers


def work_of(simulation: Simulation, deployment: Deployment) -> Work | None:
    """Return whose work a simulation did; None where its requests were not kept."""
    times = simulation.times
    if times is None:
        return None
    done = np.isfinite(times.finish_s)
    times = times if done.all() else times.select(done)
    if not len(times):
        return None
    prompts, answers = parts_s(simulation, times, deployment)
    names, base = base_classes(simulation.class_names)
    of_class = np.asarray(base)[times.request_class]
    each = prompts + answers
    total_s = float(each.sum())
    if not total_s > 0:
        return None
    of_classes = np.bincount(of_class, each, len(names))
    shares = of_classes / of_classes.sum()
    used = np.bincount(of_class, minlength=len(names)) > 0
    return Work(
        {
            name: float(share)
            for name, share, is_used in zip(names, shares, used, strict=True)
            if is_used
        },
        _busiest(times, each, deployment),
        float(prompts.sum()) / total_s,
    )


def prompt_s(
    tables: LatencyTables,
    prompts: np.ndarray,
    cached: np.ndarray,
    batch: int,
    most: int,
) -> np.ndarray:
    """Return the time by which each prompt lengthens iterations, shape (n,). [s]

    Beside ``batch`` requests that decode, in iterations with as many new tokens as the
    mean prompt has, at most ``most``; its attention by its own length. [tokens]
    """
    new = (prompts - cached).astype(float)
    chunk = int(min(max(1, round(float(new.mean()))), most, len(tables.fused_s) - 1))
    beside = min(batch, len(tables.fused_s) - 1 - chunk)
    longer_s = (
        tables.fused_s[chunk + beside]
        + tables.fused_decode_s[beside]
        - (tables.decode_s[beside] if beside else 0.0)
    )
    token_s = max(0.0, float(longer_s)) / chunk
    return np.asarray(token_s * new + tables.attention_s * new * (cached + new / 2))


def answer_s(
    tables: LatencyTables, prompts: np.ndarray, outputs: np.ndarray, batch: int
) -> np.ndarray:
    """Return the replica time of each answer, shape (n,). [s]

    A token takes its part of an iteration of ``batch`` requests, and the time of its
    own context. The first comes with the prompt. [tokens]
    """
    later = outputs - 1.0
    token_s = float(tables.decode_s[batch]) / batch
    contexts = later * (prompts + (later + 1) / 2)
    return np.asarray(
        token_s * later + float(tables.decode_context_s[batch]) * contexts
    )


def parts_s(
    simulation: Simulation, times: RequestTimes, deployment: Deployment
) -> tuple[np.ndarray, np.ndarray]:
    """Return the time of each request's prompt and of its answer, shape (n,) each. [s]

    Of several pools in dollars where all have a price, in GPU time else.
    """
    pools = deployment.pools
    disaggregated = len(pools) > 1 and deployment.split is None
    pool_of = np.repeat(range(len(pools)), [pool.replica_count for pool in pools])
    prompts, answers = np.zeros(len(times)), np.zeros(len(times))
    for index, (pool, use) in enumerate(zip(pools, simulation.pools, strict=True)):
        rows: slice | np.ndarray = slice(None)
        if deployment.split is not None:
            rows = np.flatnonzero(pool_of[times.replica] == index)
            if not len(rows):
                continue
        tables, engine = pool.configuration.tables, pool.configuration.engine
        of, to = times.prompt_tokens[rows], times.output_tokens[rows]
        cached = np.minimum(times.cached_tokens[rows], of)
        batch = _batch(use.series, min(engine.max_num_seqs, len(tables.decode_s) - 1))
        prompt, answer = np.zeros(len(of)), np.zeros(len(of))
        if not disaggregated or index == 0:
            beside = 0 if disaggregated else batch
            most = max(1, engine.max_num_batched_tokens - beside)
            prompt = prompt_s(tables, of, cached, beside, most)
        if not disaggregated or index == 1:
            answer = answer_s(tables, of, to, batch)
        # One of several is paid whatever it does: its requests share all of it.
        total_s = max(float(prompt.sum() + answer.sum()), 1e-300)
        usd = _price(deployment, index) * pool.gpu_count
        scale = 1.0 if len(pools) == 1 else usd / total_s
        prompts[rows] += scale * prompt
        answers[rows] += scale * answer
    return prompts, answers


def _price(deployment: Deployment, index: int) -> float:
    """Return the price of a GPU of a pool; 1 where a pool has none. [$/h]"""
    prices = [pool.configuration.price for pool in deployment.pools]
    if None in prices:
        return 1.0
    price = prices[index]
    assert price is not None
    return price.usd_per_gpu_h


def _batch(series: Series, most: int) -> int:
    """Return the requests that run in an iteration, in the mean, at least 1."""
    busy = np.nan_to_num(np.asarray(series.busy_share, dtype=float))
    running = np.nan_to_num(np.asarray(series.batch_requests, dtype=float))
    total = float(busy.sum())
    mean = float(running @ busy) / total if total > 0 else 1.0
    return int(min(max(1, round(mean)), most))


def _busiest(
    times: RequestTimes, work: np.ndarray, deployment: Deployment
) -> float | None:
    if len(deployment.pools) > 1 or deployment.is_changing or times.migrations.any():
        return None
    return busiest_of_mean(
        np.bincount(times.replica, work, deployment.replica_count).tolist()
    )


def busiest_of_mean(work: Sequence[float]) -> float:
    """Return the most work over the mean.

    Examples
    --------
    >>> busiest_of_mean([1.0, 2.0, 3.0])
    1.5
    """
    return float(max(work) * len(work) / sum(work))
