"""Requests per second that a replica completes while its queue never runs empty."""

from dataclasses import dataclass, replace
from itertools import compress, product

import numpy as np

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.policy import VLLM_V1
from capplan.deployment.pools import DECODE, PREFILL, Deployment, Pool
from capplan.latency.contract import linear_tables
from capplan.planning.evaluate.known_runs import scheduler_sees_slos
from capplan.planning.load.load import Load
from capplan.planning.settings.groups import MOST_BATCHED_TOKENS, MOST_KV_BLOCKS
from capplan.simulator.hand_offs import hand_off, parse_hand_off
from capplan.simulator.results.request_times import RequestTimes
from capplan.simulator.simulate import simulate
from capplan.workload.slo import Slo
from capplan.workload.synthesis import joined, resample
from capplan.workload.trace import Trace

TOLERANCE = 0.02
"""Relative half-width of the 95 % interval of the rate that is sought."""
_FIRST_REQUESTS = 8_000
_MOST_REQUESTS = 8_000 * 4**3
_PERIODS = 40
"""Parts of the time in which the rate is measured, of equal length."""
_AT_ONCE_S = 1e-12
"""Coefficients of a pool that takes no time. [s]"""
_WARMUP_SHARE = 0.1
"""Part of the time left out at its begin, after the first batch is running."""


@dataclass(frozen=True)
class Saturation:
    """What replicas complete at most, with the planned mix of requests."""

    rate_per_s: float  # completed [requests/s]
    error: float  # relative half-width of its 95 % interval
    # whether no SLO is met by fleets that are offered more; a policy that picks short
    # requests may meet one while long ones wait for ever
    binds: bool

    def utilisation(self, rate_per_s: float, replica_count: int = 1) -> float:
        """Return the arrival rate over what the replicas complete at most."""
        return rate_per_s / (self.rate_per_s * replica_count)

    def replicas_at(self, rate_per_s: float) -> int:
        """Return the fewest replicas whose utilisation may be below 1."""
        return int(rate_per_s / (self.rate_per_s * (1 + self.error))) + 1


@dataclass(frozen=True)
class _Role:
    """What one replica of a deployment does of its requests."""

    name: str = ""
    pools_before: tuple[Pool, ...] = ()  # those do their part at once
    hand_off: str = ""
    link_gb_per_s: float | None = None

    def part_of(self, mix: Trace) -> Trace:
        """Return what it does of requests: all, or their first tokens."""
        if self.name != PREFILL:
            return mix
        ones = np.ones(len(mix), np.int64)
        return replace(mix, output_tokens=ones, predicted_output_tokens=None)

    def deployment(self, configuration: Configuration) -> Deployment:
        """Return the deployment of one replica."""
        pools = (*self.pools_before, Pool(configuration, 1))
        return Deployment(
            pools, hand_off=self.hand_off, link_gb_per_s=self.link_gb_per_s
        )

    def begun_s(self, times: RequestTimes) -> np.ndarray:
        """Return when it began each request, shape (n,). [s]"""
        return times.first_token_s if self.name == DECODE else times.scheduled_s


def fleet_saturation(
    load: Load, deployment: Deployment, slo: Slo | None
) -> Saturation | None:
    """Return what a deployment completes at most; of two pools what the slower does."""
    pools = deployment.pools
    if deployment.split is not None:
        return _split_saturation(load, deployment, slo)
    of_pools = [
        replace(each, rate_per_s=each.rate_per_s * pool.replica_count)
        for each, pool in zip(
            replica_saturations(load, deployment, slo), pools, strict=True
        )
        if each is not None
    ]
    if len(of_pools) < len(pools):
        return None
    return min(of_pools, key=lambda each: each.rate_per_s)


def _split_saturation(
    load: Load, deployment: Deployment, slo: Slo | None
) -> Saturation | None:
    """Return the rate at which the first of pools side by side is at its most."""
    assert deployment.split is not None
    pool_of = deployment.split.pools_of(load.base)
    found = []
    for index, pool in enumerate(deployment.pools):
        rows = pool_of == index
        if not rows.any():
            continue
        # What was found of its part stays known for other counts.
        key = ("part", id(deployment.split), index)
        if key not in load.saturations:
            part = replace(load, base=load.base.select(rows), saturations={})
            load.saturations[key] = (deployment.split, part)
        of_replica = saturation(load.saturations[key][-1], pool.configuration, slo)
        if of_replica is None:
            return None
        rate_per_s = of_replica.rate_per_s * pool.replica_count / float(rows.mean())
        found.append(replace(of_replica, rate_per_s=rate_per_s))
    return min(found, key=lambda each: each.rate_per_s)


def replica_saturations(
    load: Load, deployment: Deployment, slo: Slo | None
) -> list[Saturation | None]:
    """Return what a replica of each pool completes at most.

    The other pool does its part at once: prompts are there when they are to be decoded,
    and answers end with their first token.
    """
    roles = [_Role()]
    if len(deployment.pools) > 1:
        roles = [_Role(PREFILL), _decode_role(deployment)]
    return [
        saturation(load, pool.configuration, slo, role)
        for pool, role in zip(deployment.pools, roles, strict=True)
    ]


def _decode_role(deployment: Deployment) -> _Role:
    """Return the role of the second pool behind a replica that takes no time."""
    configuration = deployment.pools[-1].configuration
    engine = replace(
        configuration.engine,
        max_num_batched_tokens=MOST_BATCHED_TOKENS,
        kv_blocks=MOST_KV_BLOCKS,
        prefix_caching=False,
    )
    tables = linear_tables(
        *(5 * [_AT_ONCE_S]),
        max_batch=engine.max_num_seqs,
        max_tokens=MOST_BATCHED_TOKENS,
    )
    at_once = replace(configuration, engine=engine, tables=tables)
    policy = parse_hand_off(deployment.hand_off)
    block_s = policy.settings["block"] or deployment.block_copy_s
    block_s /= hand_off(policy.name).SPEED_UP
    return _Role(
        DECODE,
        (Pool(at_once, 1),),
        f"nixl:block={block_s}s,handshake={policy.settings['handshake']}s",
        deployment.link_gb_per_s,
    )


def saturation(
    load: Load, configuration: Configuration, slo: Slo | None, role: _Role = _Role()
) -> Saturation | None:
    """Return what a replica completes with an endless queue of the traffic's mix.

    It starts with requests as a full batch holds them: drawn in proportion to their
    output (the length-biased mean), each at a random point of it. Requests wait behind
    them, in order of arrival, until the rate is known to 2 %, or 512,000 are spent.
    None where such a queue is more than the policy takes (its swapped KV fills the
    host).
    """
    known, engine = load.saturations, configuration.engine
    sees_slo = scheduler_sees_slos(engine) and engine.scheduler.rules.in_order
    of_slo = id(slo) if sees_slo else 0
    key = id(configuration.tables), engine, of_slo, role.name, role.hand_off
    if key not in known:
        found = _saturation(load, configuration, slo, role)
        known[key] = (configuration, slo, found)
    result: Saturation | None = known[key][-1]
    return result


def _saturation(
    load: Load, configuration: Configuration, slo: Slo | None, role: _Role
) -> Saturation | None:
    in_order = configuration.engine.scheduler.rules.in_order
    if not in_order:  # then it is that of vLLM V1 with the same seats and KV
        engine = replace(configuration.engine, scheduler=VLLM_V1)
        configuration = replace(configuration, engine=engine)
    n = _FIRST_REQUESTS
    while True:
        try:
            rate_per_s, error = _measured(load, configuration, slo, n, role)
        except Exception:
            # A full host, or a user's policy that raises: what else fails here fails
            # again, and is told, where the fleet is simulated.
            return None
        if error <= TOLERANCE or n >= _MOST_REQUESTS:
            break
        n *= 4
    return Saturation(rate_per_s, error, binds=in_order)


def _measured(
    load: Load, configuration: Configuration, slo: Slo | None, n: int, role: _Role
) -> tuple[float, float]:
    """Return the rate that ``n`` queued requests show, and its relative error."""
    rng = np.random.default_rng((load.seed, 5))
    mix, engine = role.part_of(load.base), configuration.engine
    running = _running(mix, _of_all_ranks(engine), rng)
    queued = resample(mix, n, rng)
    trace = joined(running, queued)
    trace = replace(trace, arrival_s=np.zeros(len(trace)))
    times = simulate(trace, role.deployment(configuration), slo=slo).table
    # From the first batch on, until no request waits.
    begun_s = role.begun_s(times)
    end_s, first_s = float(begun_s.max()), float(begun_s[: len(running)].max())
    first_s += _WARMUP_SHARE * (end_s - first_s)
    edges_s = np.linspace(first_s, end_s, _PERIODS + 1)
    done = np.diff(_work_done(times, edges_s), axis=0)
    return _rate(done, float(edges_s[1] - edges_s[0]), _work(mix))


def _of_all_ranks(engine: EngineSettings) -> EngineSettings:
    """Return an engine with the seats and the KV of all ranks."""
    ranks = engine.data_parallel_size
    return replace(
        engine,
        max_num_seqs=ranks * engine.max_num_seqs,
        kv_blocks=ranks * (engine.kv_blocks - 1) + 1,
    )


def _running(mix: Trace, engine: EngineSettings, rng: np.random.Generator) -> Trace:
    """Return requests as a full batch holds them: what they have left to do."""
    weight = mix.output_tokens / mix.output_tokens.sum()
    rows = rng.choice(len(mix), engine.max_num_seqs, p=weight)
    drawn = replace(mix, arrival_s=None).select(rows)
    # What was answered is prompt now; none gets longer than the longest of the mix,
    # which every scheduler that serves the mix takes.
    longest = int(mix.prompt_tokens.max())
    answered = (rng.random(len(rows)) * drawn.output_tokens).astype(np.int64)
    answered = np.minimum(answered, longest - drawn.prompt_tokens)
    left = drawn.output_tokens - answered
    prompt = drawn.prompt_tokens + answered
    fitting = np.cumsum(engine.request_blocks(prompt)) < engine.kv_blocks
    used = slice(0, max(1, int(fitting.sum())))
    predicted = drawn.predicted_output_tokens
    limit = drawn.max_new_tokens
    drawn = replace(
        drawn,
        prompt_tokens=prompt,
        output_tokens=left,
        max_new_tokens=np.where(limit > 0, limit - answered, 0),
        predicted_output_tokens=None
        if predicted is None
        else np.maximum(predicted - answered, 1),
    )
    return drawn.select(used)


def _work(mix: Trace) -> np.ndarray:
    """Return the mean work of a request: prompt, output, and contexts it decodes at."""
    later = mix.output_tokens - 1
    contexts = later * (mix.prompt_tokens + later / 2)
    return np.array(
        [mix.prompt_tokens.mean(), mix.output_tokens.mean(), contexts.mean()]
    )


def _work_done(times: RequestTimes, at_s: np.ndarray) -> np.ndarray:
    """Return the work done until each moment, shape (moments, 3): see ``_work``.

    Tokens come at equal distances from a request's first to its last. Long sums are
    numpy's own: those of BLAS differ in their last digits with its threads.
    """
    columns = (times.scheduled_s, times.first_token_s, times.finish_s)
    lengths = (times.prompt_tokens, times.output_tokens - 1)
    begun_s, first_s, end_s, prompt, later = (
        np.ascontiguousarray(column, np.float64) for column in (*columns, *lengths)
    )
    # Those that are done count whole; whole numbers and halves add up exactly.
    order = np.argsort(end_s)
    work = np.stack((prompt, 1 + later, later * (prompt + later / 2)), axis=1)[order]
    sums = np.vstack((np.zeros(3), np.cumsum(work, axis=0)))
    done = sums[np.searchsorted(end_s[order], at_s)]
    for moment_s, row in zip(at_s, done, strict=True):
        now = np.flatnonzero((begun_s < moment_s) & (end_s >= moment_s))
        prefill_s = np.maximum(first_s[now] - begun_s[now], 1e-12)
        decode_s = np.maximum(end_s[now] - first_s[now], 1e-12)
        prefilled = np.clip((moment_s - begun_s[now]) / prefill_s, 0, 1)
        decoded = np.clip((moment_s - first_s[now]) / decode_s, 0, 1) * later[now]
        row[0] += (prefilled * prompt[now]).sum()
        row[1] += prefilled.sum() + decoded.sum()
        row[2] += (decoded * (prompt[now] + decoded / 2)).sum()
    return done


def _rate(done: np.ndarray, period_s: float, work: np.ndarray) -> tuple[float, float]:
    """Return requests of mean ``work`` that a replica completes in a second.

    The time that work takes is regressed on the work done in each period: then it does
    not matter that the requests of a short run are not those of the mix (a regression
    estimator, Cochran, "Sampling Techniques", section 7.1). Also its relative error.
    """
    scale = np.maximum(done.mean(axis=0), 1e-12)
    time_s = np.full(len(done), period_s)
    costs = _costs(done / scale, time_s)
    used = costs > 0
    matrix, mean = (done / scale)[:, used], (work / scale)[used]
    residual = time_s - matrix @ costs[used]
    variance = residual @ residual / (len(done) - used.sum())
    request_s = float(mean @ costs[used])
    error_s = np.sqrt(variance * (mean @ np.linalg.pinv(matrix.T @ matrix) @ mean))
    return 1 / request_s, float(1.96 * error_s / request_s)


def _costs(work: np.ndarray, time_s: np.ndarray) -> np.ndarray:
    """Return costs >= 0 of the least squares: the best of all subsets of columns."""
    best, least = np.zeros(work.shape[1]), np.inf
    for used in product((False, True), repeat=len(best)):
        columns = [*compress(range(len(best)), used)]
        costs = np.linalg.lstsq(work[:, columns], time_s, rcond=None)[0]
        residual = time_s - work[:, columns] @ costs
        if (costs > 0).all() and residual @ residual < least:
            least = residual @ residual
            best = np.zeros(len(best))
            best[columns] = costs
    return best
