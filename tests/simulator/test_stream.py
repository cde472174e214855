"""A trace in chunks gives what the whole trace gives."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.deployment.engine import EngineSettings
from capplan.errors import InputError
from capplan.latency.contract import linear_tables
from capplan.planning.evaluate.streaming import watching
from capplan.simulator.results.histogram import LEAST_S, RELATIVE_ERROR
from capplan.simulator.results.request_times import METRICS
from capplan.simulator.results.sketches import Sketches
from capplan.simulator.results.table import Table
from capplan.simulator.results.windows import WINDOWS, Windows
from capplan.simulator.routers import ROUTERS
from capplan.simulator.simulate import simulate
from capplan.workload.slo import LIMITS as LIMIT_NAMES
from capplan.workload.slo import parse_slo
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

LIMITS = EngineSettings(
    max_num_batched_tokens=512, max_num_seqs=32, block_size=16, kv_blocks=400
)
TABLES = linear_tables(8e-3, 4e-5, 0, 1e-4, 1e-6, max_batch=32, max_tokens=512)
SLO = parse_slo(["chat:ttft=150ms,tpot=13ms", "batch:tpot=14ms,e2e=2s"])
LEVELS = np.array([0.5, 0.9, 0.95, 0.99, 0.999])


def traffic(n=3000, rate_per_s=20.0, seed=0, start_s=100.0, groups=False):
    rng = np.random.default_rng(seed)
    prompts = rng.integers(10, 300, n)
    shared = {}
    if groups:
        shared["prefix_group"] = rng.integers(-1, 5, n)
        # The longest shared prefixes come last: room for them must grow.
        longest = np.linspace(0, 280, n).astype(int)
        shared["prefix_tokens"] = np.minimum(prompts, longest)
    return Trace(
        prompts,
        rng.geometric(1 / 40, n).clip(1, 400),
        start_s + np.cumsum(rng.exponential(1 / rate_per_s, n)),
        request_class=rng.integers(0, 2, n),
        class_names=("chat", "batch"),
        session=rng.integers(0, 90, n),
        **shared,
    )


def chunks(trace, requests):
    for first in range(0, len(trace), requests):
        yield trace.select(slice(first, first + requests))


def streamed(trace, requests, engine=LIMITS, replicas=3, router="jsq", **asked):
    fleet = fleet_of(TABLES, engine, replicas, router=router)
    counted = {key: asked.pop(key, None) for key in ("on_finished", "warmup_s")}
    sink = Sketches(
        asked.get("slo"), counted["warmup_s"] or 0.0, counted["on_finished"]
    )
    return simulate(chunks(trace, requests), fleet, sink=sink, **asked)


def figures(simulation):
    """Return all figures of a simulation, to compare with another's to the bit."""
    windows = simulation.windows
    return (
        simulation.totals,
        simulation.iteration_count,
        simulation.busy_s,
        {name: column.tolist() for name, column in windows.columns.items()},
        windows.by_class.tolist(),
        windows.histograms.sum(axis=1).tolist(),
        {name: column.tolist() for name, column in vars(simulation.series).items()},
    )


@pytest.mark.parametrize("router", sorted(ROUTERS))
def test_the_figures_are_those_of_the_whole_trace(router):
    trace = traffic()
    whole = simulate(trace, fleet_of(TABLES, LIMITS, 3, router=router), slo=SLO, seed=7)

    parts = streamed(trace, 700, router=router, slo=SLO, seed=7)

    times, used = whole.table, len(parts.series.start_s)
    met = times.met(SLO.columns(trace.request_class, trace.class_names))
    attained = np.logical_and.reduce(met)
    columns = parts.windows.columns
    assert columns["counted"].sum() == len(trace)
    assert columns["attained"].sum() == attained.sum()
    assert [columns[name].sum() for name in LIMIT_NAMES] == [m.sum() for m in met]
    assert parts.windows.by_class.sum(axis=0).tolist() == [
        [(trace.request_class == k).sum(), attained[trace.request_class == k].sum()]
        for k in range(2)
    ]
    assert parts.totals == whole.totals
    assert parts.iteration_count == whole.iteration_count
    assert parts.busy_s == pytest.approx(whole.busy_s, rel=1e-9)
    assert not parts.interrupted
    for name in METRICS:
        exact_s = getattr(times, name)
        exact_s = exact_s[~np.isnan(exact_s)]
        histogram = parts.windows.histogram(name, used)
        assert histogram.count == exact_s.size
        assert histogram.mean_s == pytest.approx(exact_s.mean(), rel=1e-9)
        np.testing.assert_allclose(
            histogram.quantiles_s(LEVELS),
            np.quantile(exact_s, LEVELS),
            rtol=RELATIVE_ERROR * 1.001,
            atol=LEAST_S,
        )


def test_requests_of_the_warm_up_are_not_counted():
    trace = traffic()
    whole = simulate(trace, fleet_of(TABLES, LIMITS, 3))
    counted = trace.arrival_s >= trace.arrival_s[0] + 7.3

    parts = streamed(trace, 700, warmup_s=7.3)

    used = len(parts.series.start_s)
    histogram = parts.windows.histogram("ttft_s", used)
    assert parts.windows.columns["counted"].sum() == counted.sum()
    assert parts.windows.columns["completed"].sum() == len(trace)
    assert histogram.mean_s == pytest.approx(whole.table.ttft_s[counted].mean())


@given(requests=st.integers(1, 3000))
@settings(max_examples=8, deadline=None)
def test_the_answer_does_not_depend_on_the_chunks(requests):
    trace = traffic(1200, groups=True)
    engine = replace(LIMITS, prefix_caching=True)

    one = streamed(trace, len(trace), engine, router="power-of-two", slo=SLO)
    other = streamed(trace, requests, engine, router="power-of-two", slo=SLO)

    assert figures(other) == figures(one)


def test_room_for_shared_prefixes_grows_with_them():
    trace = traffic(groups=True)
    engine = replace(LIMITS, prefix_caching=True)
    whole = simulate(trace, fleet_of(TABLES, engine, 3))

    found = streamed(trace, 100, engine)

    assert found.totals.cached_tokens == whole.totals.cached_tokens > 0
    assert found.iteration_count == whole.iteration_count


def test_the_fleet_over_time_holds_the_whole_run():
    trace = traffic(rate_per_s=2.0)

    found = streamed(trace, 500)

    series = found.series
    width_s = series.start_s[1] - series.start_s[0]
    widths_s = np.full(len(series.start_s), width_s)
    end_s = trace.arrival_s[0] + found.totals.makespan_s
    widths_s[-1] = max(width_s, end_s - series.start_s[-1])
    assert WINDOWS / 2 <= len(series.start_s) <= WINDOWS
    assert (series.busy_share * widths_s).sum() * 3 == pytest.approx(found.busy_s)
    assert series.preemptions.sum() == found.totals.preemptions


@pytest.mark.parametrize("after", [1, 3])
def test_a_run_that_is_stopped_answers_for_the_first_requests(after):
    trace = traffic(4000)
    asked = []

    def stopped():
        asked.append(None)
        return len(asked) > 2 * after

    found = streamed(trace, 400, slo=SLO, stopped=stopped)

    whole = simulate(trace, fleet_of(TABLES, LIMITS, 3))
    count = found.totals.request_count
    first = slice(0, count)
    end_s = trace.arrival_s[0] + found.totals.duration_s
    histogram = found.windows.histogram("ttft_s", len(found.series.start_s))
    assert found.interrupted
    assert 0 < count < found.arrived_count < len(trace)
    assert trace.arrival_s[count - 1] < end_s
    assert trace.arrival_s[count] >= end_s
    assert found.totals.output_tokens == trace.output_tokens[first].sum()
    assert histogram.mean_s == pytest.approx(whole.table.ttft_s[first].mean(), rel=1e-9)


def test_a_run_stopped_before_anything_finished_counts_nothing():
    found = streamed(traffic(50), 50, slo=SLO, stopped=lambda: True)

    assert found.totals.request_count == 0


def test_a_simulation_that_is_stopped_has_no_times_for_the_rest():
    trace = traffic(40_000)
    asked = []

    def stopped():
        asked.append(None)
        return len(asked) > 1

    found = simulate(trace, fleet_of(TABLES, LIMITS, 3), stopped=stopped)

    whole = simulate(trace, fleet_of(TABLES, LIMITS, 3))
    finished = ~np.isnan(found.table.finish_s)
    assert 0 < found.completed == finished.sum() < len(trace)
    assert np.array_equal(found.table.ttft_s[finished], whole.table.ttft_s[finished])


def test_progress_counts_what_has_finished_over_all_chunks():
    seen = []
    watch = watching(lambda count, about: seen.append((count, about)), 900)

    streamed(traffic(1000), 300, on_finished=watch)

    assert seen == sorted(seen)
    assert seen[-1] == (1000, 900)


def test_a_table_hands_on_what_finishes_too():
    trace, seen = traffic(1000), []

    fleet = fleet_of(TABLES, LIMITS, 3)
    simulate(trace, fleet, sink=Table(lambda done: seen.append(len(done))))

    assert sum(seen) == 1000
    assert 0 not in seen


def test_every_request_is_handed_on_when_it_finishes():
    trace = traffic(1000)
    parts = []

    streamed(trace, 300, on_finished=lambda done: parts.append(done.copy()))

    done = np.concatenate(parts)
    done.sort(order="row")
    assert done["row"].tolist() == list(range(1000))
    assert np.array_equal(done["request_class"], trace.request_class)
    assert np.array_equal(done["arrival_s"], trace.arrival_s)


@pytest.mark.parametrize(
    ("given_chunks", "expected"),
    [
        ([], "no requests"),
        ([Trace([5], [2])], "no arrival times"),
        ([Trace([5], [2], [3.0]), Trace([5], [2], [1.0])], "sort the trace"),
        (
            [Trace([5], [2], [0.0]), Trace([5, 9999], [2, 2], [1.0, 2.0])],
            "1 requests fit no replica; the first is row 3 with 9999",
        ),
        (
            [
                Trace([5], [2], [0.0], class_names=("a",)),
                Trace([5], [2], [0.0], class_names=("b",)),
            ],
            "expected every chunk to number them alike",
        ),
    ],
)
def test_chunks_that_cannot_be_served_are_refused(given_chunks, expected):
    with pytest.raises(InputError, match=expected):
        simulate(given_chunks, fleet_of(TABLES, LIMITS, 1), sink=Sketches())


def test_a_class_without_an_slo_is_refused():
    with pytest.raises(InputError, match="class 'batch' of the trace has no SLO"):
        streamed(traffic(10), 10, slo=parse_slo("chat:ttft=1s"))


def test_windows_that_are_joined_keep_their_sums():
    windows = Windows(10.0)
    arrival_s = 10.0 + np.arange(WINDOWS) * windows.width_s
    windows.columns["completed"] += 1

    factor = windows.reach(10.0 + 5 * WINDOWS * windows.width_s)

    assert factor == 8
    assert windows.columns["completed"].tolist() == [8.0] * 30 + [0.0] * 210
    assert windows.index(arrival_s)[[0, 7, 8, -1]].tolist() == [0, 0, 1, 29]


def test_tables_that_may_not_be_written_to_serve_as_well():
    trace = traffic(200)
    frozen = [np.array(table) for table in TABLES[:5]]
    for table in frozen:
        table.flags.writeable = False

    found = simulate(trace, fleet_of(TABLES._make([*frozen, *TABLES[5:]]), LIMITS, 1))

    whole = simulate(trace, fleet_of(TABLES, LIMITS, 1))
    assert np.array_equal(found.table.finish_s, whole.table.finish_s)
