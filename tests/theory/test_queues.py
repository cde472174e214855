"""The simulator where an engine is a queue that theory solves.

With ``max_num_seqs = 1``, synchronous scheduling and an iteration time that depends
on nothing, a replica serves one request at a time, first come first served, and a
request of k output tokens takes k iterations: one server whose service times are
k times a constant. Arrivals are Poisson throughout.

Kleinrock: "Queueing Systems", vol. 1: Theory, Wiley 1975.
"""

import math

import numpy as np
import pytest

from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import linear_tables
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

ITERATION_S = 1e-3
REPLICATIONS = 20
REQUESTS = 8_000
WARM_UP = 1_000


def assert_mean(replications, expected, z=4.0):
    """Fail when ``expected`` is more than ``z`` standard errors from the mean.

    The tolerance comes from the replications, so a test that passes by luck
    stops passing when replications are added.
    """
    replications = np.asarray(replications)
    error = replications.std(ddof=1) / np.sqrt(replications.size)
    assert abs(replications.mean() - expected) < z * error


def assert_mean_between(replications, low, high, z=4.0):
    """Fail when the mean is more than ``z`` standard errors outside [low, high]."""
    replications = np.asarray(replications)
    error = replications.std(ddof=1) / np.sqrt(replications.size)
    assert low - z * error < replications.mean() < high + z * error


def served(arrival_s, iterations, servers=1, router="jsq", seed=0, slots=1):
    """Return the times of requests that take whole numbers of iterations each."""
    trace = Trace(np.ones(len(iterations), int), iterations, arrival_s)
    engine = EngineSettings(
        max_num_batched_tokens=slots,
        max_num_seqs=slots,
        block_size=16,
        kv_blocks=slots * (int(iterations.max()) // 16 + 2) + 1,
        async_scheduling=False,
    )
    tables = linear_tables(ITERATION_S, 0, 0, 0, 0, max_batch=slots, max_tokens=slots)
    return simulate(
        trace, fleet_of(tables, engine, servers, router=router), seed=seed
    ).times


def mean_waits_s(draw_iterations, mean_service_s, load, servers=1, router="jsq"):
    """Return the mean wait of each replication. [s]"""
    waits_s = []
    for seed in range(REPLICATIONS):
        rng = np.random.default_rng(seed)
        gaps_s = rng.exponential(mean_service_s / (load * servers), REQUESTS)
        iterations = draw_iterations(rng)
        times = served(np.cumsum(gaps_s), iterations, servers, router, seed)
        waits_s.append(times.wait_s[WARM_UP:].mean())
    return waits_s


def erlang_c(servers: int, load: float) -> float:
    """Return the probability that an arrival waits in M/M/c.

    Kleinrock, section 3.5.
    """
    offered = servers * load
    waiting = offered**servers / math.factorial(servers) / (1 - load)
    free = sum(offered**k / math.factorial(k) for k in range(servers))
    return waiting / (free + waiting)


# A geometric number of iterations with mean 500 is exponential to 0.1 %; the
# exact first two moments enter the expected values.
MEAN_ITERATIONS = 500


def geometric(rng):
    return rng.geometric(1 / MEAN_ITERATIONS, REQUESTS)


def constant(rng):
    return np.full(REQUESTS, 8)


def two_kinds(rng):
    return np.where(rng.random(REQUESTS) < 0.9, 5, 155)


def pollaczek_khinchine_wait_s(load, mean_s, second_moment):
    """Mean wait in M/G/1, by Pollaczek and Khinchine: Kleinrock, section 5.5."""
    rate_per_s = load / mean_s
    return rate_per_s * second_moment / (2 * (1 - load))


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_one_token_at_a_time_with_exponential_lengths_is_mm1(load):
    # Kleinrock, section 3.2: W = rho / (mu (1 - rho)); a geometric length
    # has E[k^2] = (2 - p) / p^2, of which the exponential is the limit.
    p = 1 / MEAN_ITERATIONS
    mean_s = MEAN_ITERATIONS * ITERATION_S
    second_moment = (2 - p) / p**2 * ITERATION_S**2
    exact_s = pollaczek_khinchine_wait_s(load, mean_s, second_moment)
    assert exact_s == pytest.approx(load * mean_s / (1 - load), rel=2e-3)

    waits_s = mean_waits_s(geometric, mean_s, load)

    assert_mean(waits_s, exact_s)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.9])
def test_outputs_of_equal_length_are_md1(load):
    # Kleinrock, section 5.5: half the wait of M/M/1
    service_s = 8 * ITERATION_S

    waits_s = mean_waits_s(constant, service_s, load)

    assert_mean(waits_s, load * service_s / (2 * (1 - load)))


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_outputs_of_two_lengths_wait_as_pollaczek_and_khinchine_say(load):
    mean_s = (0.9 * 5 + 0.1 * 155) * ITERATION_S
    second_moment = (0.9 * 5**2 + 0.1 * 155**2) * ITERATION_S**2

    waits_s = mean_waits_s(two_kinds, mean_s, load)

    expected_s = pollaczek_khinchine_wait_s(load, mean_s, second_moment)
    assert_mean(waits_s, expected_s)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_time_and_requests_in_system_satisfy_littles_law(load):
    # Little, "A proof for the queuing formula L = lambda W", Operations Research
    # 9(3), 1961. Exact on any finite trace between empty and empty.
    rng = np.random.default_rng(4)
    iterations = geometric(rng)
    mean_s = MEAN_ITERATIONS * ITERATION_S
    times = served(np.cumsum(rng.exponential(mean_s / load, REQUESTS)), iterations)

    moments_s = np.sort(np.concatenate([times.arrival_s, times.finish_s]))
    present = np.searchsorted(times.arrival_s, moments_s, side="right")
    present = present - np.searchsorted(np.sort(times.finish_s), moments_s, "right")
    area = float((present[:-1] * np.diff(moments_s)).sum())

    assert area == pytest.approx(float(times.e2e_s.sum()), rel=1e-9)


@pytest.mark.parametrize("load", [0.4, 0.7])
def test_round_robin_thins_poisson_arrivals_to_erlang_ones(load):
    # Every c-th arrival of a Poisson process: interarrival times are Erlang-c, so
    # each replica is E2/M/1. Kleinrock, section 6.4: the wait of
    # G/M/1 is sigma / (mu (1 - sigma)) with sigma = A*(mu - mu sigma); for Erlang-2
    # arrivals at rate lambda per replica, A*(s) = (2 lambda / (s + 2 lambda))^2.
    mean_s = MEAN_ITERATIONS * ITERATION_S
    sigma = 0.5
    for _ in range(200):
        sigma = (2 * load / ((1 - sigma) + 2 * load)) ** 2

    waits_s = mean_waits_s(geometric, mean_s, load, servers=2, router="round-robin")

    # The service is geometric, not exponential: off by 1/500, far below the error.
    assert_mean(waits_s, sigma * mean_s / (1 - sigma))


@pytest.mark.parametrize(("servers", "load"), [(2, 0.5), (2, 0.8), (4, 0.8)])
def test_joining_the_shortest_queue_lies_between_one_queue_and_random_ones(
    servers, load
):
    # No router keeps one queue for all replicas: a request is bound to its replica
    # on arrival, as behind a load balancer, so Erlang C bounds its wait from below.
    # Winston, "Optimality of the shortest line discipline", J. Appl. Prob.
    # 14(1), 1977: no better routing without looking at lengths, hence below c
    # separate M/M/1; and M/M/c, where no server rests while a request waits, is
    # below it.
    mean_s = MEAN_ITERATIONS * ITERATION_S
    one_queue_s = erlang_c(servers, load) * mean_s / (servers * (1 - load))
    separate_s = load * mean_s / (1 - load)

    waits_s = mean_waits_s(geometric, mean_s, load, servers=servers)

    assert_mean_between(waits_s, one_queue_s, separate_s, z=0.0)


def test_erlang_c_of_two_servers_is_the_closed_form():
    # For c = 2 the sum is 2 rho^2 / (1 + rho); for c = 1 it is rho.
    assert erlang_c(2, 0.8) == pytest.approx(2 * 0.8**2 / 1.8)
    assert erlang_c(1, 0.37) == pytest.approx(0.37)


@pytest.mark.parametrize(("slots", "load"), [(2, 0.6), (4, 0.8), (8, 0.9)])
def test_one_engine_with_c_slots_is_mmc(slots, load):
    # An engine that runs up to c requests at once, each at a speed that does not
    # depend on the others, is c servers behind one queue. A request that finds a
    # slot free still waits for the running iteration to end, hence the interval:
    # from Erlang's wait to that and one iteration. The geometric lengths are 0.2 %
    # from exponential ones in their second moment.
    mean_s = MEAN_ITERATIONS * ITERATION_S
    one_queue_s = erlang_c(slots, load) * mean_s / (slots * (1 - load))
    waits_s = []
    for seed in range(REPLICATIONS):
        rng = np.random.default_rng(seed)
        gaps_s = rng.exponential(mean_s / (load * slots), REQUESTS)
        times = served(np.cumsum(gaps_s), geometric(rng), slots=slots)
        waits_s.append(times.wait_s[WARM_UP:].mean())

    assert_mean_between(waits_s, 0.998 * one_queue_s, one_queue_s + ITERATION_S)
