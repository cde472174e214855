"""The search for the fewest replicas, on runs whose attainment is given."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.errors import HostFullError
from capplan.planning.size.fewest_replicas import binding_limit, fewest_replicas


class Judged(SimpleNamespace):
    """A verdict of which the search sees whether it holds."""

    @property
    def holds(self):
        return self.meets is True or self.no_miss


def run(count, share, target=0.99, iterations=None, close=0.0):
    """A run of which the search sees its count, its verdict and its iterations."""
    meets = None if abs(share - target) < close else share >= target
    return SimpleNamespace(
        replica_count=count,
        judgement=Judged(
            meets=meets,
            missing=("all",) if share < target else (),
            no_miss=False,
            steadiness=SimpleNamespace(settled=True),
            attainment=SimpleNamespace(share=share),
        ),
        simulation=SimpleNamespace(
            iteration_count=iterations or 1000 + count, busy_s=9.0
        ),
    )


def fewest_of(run_with, *asked, **also):
    """Return the fewest by runs of one count."""
    return fewest_replicas(lambda counts: run_with(*counts), *asked, **also)


def search(shares, at_least=1, most=4096, close=0.0):
    """Search among counts whose share is ``shares(count)``; return what was tried."""
    tried = []

    def run_with(count):
        tried.append(count)
        return run(count, shares(count), close=close)

    return fewest_of(run_with, at_least, most), tried


def test_the_bound_itself_may_pass():
    fewest, tried = search(lambda count: 1.0)

    assert fewest.run.replica_count == 1
    assert fewest.decided
    assert tried == [1, 2]


def test_counts_beyond_the_band_above_decide_nothing():
    """Of 20 replicas 5 % are one more: 21 must do, and 22, which does not, may not."""
    fewest, tried = search(lambda count: float(count >= 20 and count != 22), 20)

    assert (fewest.run.replica_count, fewest.decided) == (20, True)
    assert 21 in tried


def test_the_count_below_is_among_the_runs_and_fails():
    fewest, _ = search(lambda count: count / 20, at_least=3)

    assert fewest.run.replica_count == 20
    counts = [each.replica_count for each in fewest.runs]
    assert counts == sorted(counts)
    assert fewest.runs[counts.index(19)].judgement.meets is False


def test_a_count_below_the_bound_that_passes_is_found():
    fewest, _ = search(lambda count: 1.0 if count >= 4 else 0.0, at_least=6)

    assert fewest.run.replica_count == 4


def test_no_count_is_simulated_twice():
    _, tried = search(lambda count: count / 100)

    assert len(tried) == len(set(tried))


def test_the_first_miss_goes_near_the_bound_and_later_ones_stride():
    # 40 fails: 50 next (a quarter more), then 75 (half more), then bisection.
    _, tried = search(lambda count: 1.0 if count >= 60 else 0.5, at_least=40)

    assert tried[:3] == [40, 50, 75]


def test_every_count_in_the_band_below_is_tried():
    # 30 passes, 29 and 28 do not, and 27 and 26 do: attainment is not monotone.
    passing = {26, 27, *range(30, 100)}

    fewest, _ = search(lambda count: 1.0 if count in passing else 0.5, at_least=28)

    assert fewest.run.replica_count == 30  # 27 has a count just above it that fails
    assert {26, 27, 28, 29} <= {each.replica_count for each in fewest.runs}


def test_counts_just_above_must_pass_too():
    # 41 to 43 must pass beside 40 (5 %), and 42 does not.
    passing = {40, 41, *range(43, 200)}

    fewest, _ = search(lambda count: 1.0 if count in passing else 0.5, at_least=40)

    assert fewest.run.replica_count == 43


def test_a_large_fleet_looks_at_few_counts_of_its_bands():
    # 10 % below and 5 % above 1,000 replicas are 150 counts.
    fewest, tried = search(lambda count: 1.0 if count >= 1000 else 0.5, at_least=990)

    near = [count for count in tried if 900 <= count <= 1050]
    assert fewest.run.replica_count == 1000
    assert set(range(995, 1000)) <= set(near)
    assert len(near) < 25


def test_a_count_above_that_misses_is_not_forgotten_in_a_large_fleet():
    # 1,003 is no multiple of the distance at which counts above are looked at, but was
    # simulated before.
    missing = {1003}

    fewest, _ = search(
        lambda count: 0.5 if count < 1000 or count in missing else 1.0, at_least=1003
    )

    assert fewest.run.replica_count > 1003


def test_counts_too_close_to_call_are_named_and_not_taken():
    shares = {3: 0.8, 4: 0.9897, 5: 0.9903, 6: 0.9990, 7: 0.9995, 8: 0.9999}

    fewest, _ = search(lambda count: shares.get(count, 1.0), at_least=3, close=5e-4)

    assert fewest.run.replica_count == 6
    assert fewest.decided
    assert fewest.close == ((4,), (5,))


def test_where_nothing_is_decided_the_fewest_at_the_target_is_taken():
    # A plateau at the target: no more replicas help, and none is decided.
    fewest, _ = search(
        lambda count: 0.5 if count < 4 else 0.9901, at_least=2, most=64, close=5e-4
    )

    assert not fewest.decided
    assert not fewest.run.judgement.missing


def test_the_search_gives_up_at_the_most_replicas():
    fewest, _ = search(lambda count: 0.5, most=64)

    assert fewest.run is None
    assert fewest.runs[-1].replica_count == 64


def test_the_search_gives_up_where_more_replicas_change_nothing():
    tried = []

    def run_with(count):
        tried.append(count)
        return run(count, 0.5, iterations=777)

    fewest = fewest_of(run_with, 10, 4096)

    assert fewest.run is None
    assert tried == [10, 13]


@given(first=st.integers(1, 300), at_least=st.integers(1, 300))
def test_a_rising_attainment_is_found_exactly(first, at_least):
    at_least = min(at_least, first)

    fewest, _ = search(lambda count: 1.0 if count >= first else 0.0, at_least)

    assert fewest.run.replica_count == first
    assert fewest.close == ()
    if first > 1:
        assert first - 1 in [each.replica_count for each in fewest.runs]


def unsettled(count):
    """A run from whose full start the fleet does not come back."""
    found = run(count, 1.0)
    found.judgement.meets = None
    found.judgement.steadiness.settled = False
    return found


def test_counts_above_one_that_does_not_settle_are_tried():
    def run_with(count):
        return unsettled(count) if count < 5 else run(count, 1.0)

    fewest = fewest_of(run_with, 3, 4096, settled_by=6)

    assert (fewest.run.replica_count, fewest.decided) == (5, True)
    assert fewest.close == ((3,), (4,))


def test_what_does_not_settle_with_twice_the_replicas_is_not_decided():
    tried = []

    def run_with(count):
        tried.append(count)
        return unsettled(count)

    fewest = fewest_of(run_with, 3, 4096, settled_by=6)

    assert not fewest.decided
    assert fewest.run.replica_count == max(tried)
    assert 6 <= max(tried) <= 9


def test_a_target_of_1_takes_the_fewest_without_a_miss_and_looks_no_further():
    tried = []

    def run_with(count):
        tried.append(count)
        found = run(count, 1.0 if count >= 4 else 0.999, target=1.0)
        if count >= 4:
            found.judgement.meets, found.judgement.no_miss = None, True
        return found

    fewest = fewest_of(run_with, 4, 4096)

    assert (fewest.run.replica_count, fewest.decided) == (4, False)
    assert max(tried) == 4


@pytest.mark.parametrize("needed", [1, 7, 40, 333])
def test_a_count_found_coarsely_is_within_a_tenth(needed):
    def run_with(count):
        return run(count, 1.0 if count >= needed else 0.5)

    fewest = fewest_of(run_with, 1, 4096, coarse=True)

    assert fewest.coarse
    assert needed <= fewest.run.replica_count <= max(1.1 * needed, needed + 1)


def failing(by_limit, preemptions=(0, 0, 0, 0), kv_share=0.5):
    return SimpleNamespace(
        simulation=SimpleNamespace(
            table=SimpleNamespace(preemptions=np.array(preemptions)),
            series=SimpleNamespace(kv_share=np.full(10, kv_share)),
        ),
        judgement=SimpleNamespace(attainment=SimpleNamespace(by_limit=by_limit)),
    )


@pytest.mark.parametrize(
    ("run", "binding"),
    [
        (None, "none"),
        (failing({"ttft": 0.9, "tpot": 0.7, "e2e": 1.0}), "TPOT"),
        (failing({"ttft": 0.6, "tpot": 0.7, "e2e": 1.0}), "TTFT"),
        (failing({"ttft": 0.6, "tpot": 0.7, "e2e": 0.1}), "E2E"),
        (failing({"ttft": 0.6, "tpot": 0.7, "e2e": 1.0}, (0, 0, 2, 0)), "KV"),
        (failing({"ttft": 0.6, "tpot": 0.7, "e2e": 1.0}, kv_share=0.99), "KV"),
    ],
    ids=["one replica", "tpot", "ttft", "e2e", "preempted", "cache full"],
)
def test_what_binds_is_read_off_the_count_that_fails(run, binding):
    assert binding_limit(run) == binding


def test_a_count_that_meets_the_slo_alone_is_an_answer_that_is_not_decided():
    fewest, tried = search(lambda count: 1.0 if count % 2 == 0 else 0.9)

    assert (fewest.run.replica_count, fewest.decided) == (2, False)
    assert max(tried) < 20


def test_replicas_that_stay_idle_end_the_look_above():
    # From the fifth on they get no requests, and the SLO is missed.
    tried = []

    def run_with(count):
        tried.append(count)
        share = 1.0 if count == 4 else 0.9
        return run(count, share, iterations=1000 + min(count, 5))

    fewest = fewest_of(run_with, 3, 4096)

    assert (fewest.run.replica_count, fewest.decided) == (4, False)
    assert max(tried) <= 7


def test_a_count_that_fills_the_host_does_not_do():
    def run_with(count):
        if count < 5:
            raise HostFullError("full")
        return run(count, 0.5 if count < 7 else 1.0)

    fewest = fewest_of(run_with, 1, 4096)

    assert fewest.run.replica_count == 7
    assert [each.replica_count for each in fewest.runs if each.replica_count < 5] == []


def test_where_every_count_fills_the_host_this_is_said():
    def run_with(count):
        raise HostFullError("full")

    with pytest.raises(HostFullError, match="full"):
        fewest_of(run_with, 1, 8)
