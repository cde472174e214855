"""Speculative decoding: hand-worked cases, laws, and a judge that steps through it."""

from dataclasses import replace

import numpy as np
import pytest
from cases import EXAMPLES, Case, cases
from group_cases import apart
from hypothesis import given, settings
from hypothesis import strategies as st
from judge import judge
from judge_drafts import accepted
from judge_v1 import judge_v1
from random_cases import random_cut_drafts
from recorded import as_recorded

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import Deployment, Pool
from capplan.deployment.speculation import Speculation, rates_of_length
from capplan.errors import InputError
from capplan.latency.contract import linear_tables
from capplan.simulator.simulate import simulate
from capplan.workload.slo import RequestSlo, Slo
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

ROUNDING = 1e-9
TABLES = linear_tables(6e-3, 18e-6, 0, 18e-6, 0.05e-6, max_batch=64, max_tokens=2048)
DRAFT_S = 300e-6


def rates(draw, most=3):
    """Draw acceptance rates, none above the one before; 0 and 1 often."""
    share = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1, width=32))
    return tuple(sorted(draw(st.lists(share, min_size=1, max_size=most)), reverse=True))


@st.composite
def speculative_cases(draw, requests=24, replicas=2):
    """Draw a case whose engine verifies drafts, with KV that barely holds a request."""
    case = draw(cases(requests, replicas))
    speculation = Speculation(
        draw(st.sampled_from(["mtp", "ngram"])),
        rates(draw),
        draft_s=draw(st.sampled_from([0.0, 2.0**-10])),
    )
    engine = replace(case.engine, speculation=speculation)
    largest = engine.request_blocks(
        case.trace.prompt_tokens + case.trace.output_tokens - 1 + engine.slack_tokens
    ).max()
    spare = int(case.engine.kv_blocks - 1 - largest)
    engine = replace(
        engine,
        kv_blocks=int(largest) + 1 + (spare if spare > 0 else draw(st.integers(0, 6))),
        max_num_batched_tokens=max(
            engine.max_num_batched_tokens, speculation.verified_tokens
        ),
    )
    tables = case.tables.reaching(
        max(engine.max_num_batched_tokens, len(case.tables.fused_s) - 1)
    )
    return Case(case.trace, tables, engine, case.replica_count)


def assert_judged(case, router, seed, tbt_s=0.05, **how):
    slo = RequestSlo(tbt_s=tbt_s)
    verdict = judge(*case, router, seed=seed, slo=slo)
    times = case.simulated(router, seed=seed, slo=Slo(slo), **how).times
    found = verdict.requests
    ended_s = max(request.token_s[-1] for request in found)
    close = {"rtol": 0, "atol": ROUNDING * max(1.0, ended_s)}
    assert times.replica.tolist() == verdict.replica
    late = [int((np.diff(each.token_s) > tbt_s).sum()) for each in found]
    assert times.late_gaps.tolist() == late
    assert times.preemptions.tolist() == [each.preemptions for each in found]
    assert times.cached_tokens.tolist() == [each.cached_tokens for each in found]
    for name, of in (
        ("scheduled_s", lambda each: each.scheduled_s),
        ("first_token_s", lambda each: each.token_s[0]),
        ("finish_s", lambda each: each.token_s[-1]),
        ("longest_gap_s", lambda each: max(np.diff(each.token_s), default=0.0)),
    ):
        np.testing.assert_allclose(
            getattr(times, name), [of(each) for each in found], **close
        )


def accepting(draw, recorded):
    """Draw a case as one recorded with vLLM, with drafts accepted by chance."""
    trace, tables, engine = as_recorded(recorded)
    accepted = rates(draw, recorded["drafts"])
    accepted += (accepted[-1],) * (recorded["drafts"] - len(accepted))
    speculation = Speculation(recorded["method"], accepted)
    engine = replace(engine, speculation=speculation)
    return Case(trace, tables, engine, draw(st.integers(1, 2)))


@st.composite
def cut_cases(draw):
    """Draw a case whose budget is often short of the drafts."""
    return accepting(draw, random_cut_drafts(draw(st.integers(0, 10**6))))


@pytest.mark.thorough
@pytest.mark.parametrize("router", ["round-robin", "jsq", "power-of-two"])
@settings(deadline=None, max_examples=4 * EXAMPLES)
@given(case=speculative_cases(), seed=st.integers(0, 2**20), jump=st.integers(1, 9))
def test_every_request_gets_the_times_of_the_step_by_step_judge(
    router, case, seed, jump
):
    assert_judged(case, router, seed)
    assert_judged(case, router, seed, longest_jump=jump)


@given(case=cut_cases(), seed=st.integers(0, 2**20), jump=st.integers(1, 9))
@settings(max_examples=15, deadline=None)
def test_requests_whose_drafts_are_cut_get_the_times_of_the_judge(case, seed, jump):
    assert_judged(case, "jsq", seed)
    assert_judged(case, "jsq", seed, longest_jump=jump)


def engine_of(rates_, *, method="mtp", sync=True, **given):
    """Return an engine that drafts as in the hand-worked cases."""
    speculation = Speculation(method, rates_, draft_s=DRAFT_S)
    own = {"max_num_batched_tokens": 2048, "max_num_seqs": 64, "kv_blocks": 1001}
    return EngineSettings(
        async_scheduling=not sync, speculation=speculation, **(own | given)
    )


def served(engine, prompts, outputs, seed=0, **how):
    trace = Trace(np.array(prompts), np.array(outputs), np.zeros(len(prompts)))
    return simulate(trace, fleet_of(TABLES, engine, 1), seed=seed, **how)


SHARES = (0.75, 0.5, 0.25)


def seed_of(*counts):
    """Return a seed with which the first request of a trace accepts so many drafts."""
    for seed in range(100_000):
        found = tuple(accepted(SHARES, seed, 0, j) for j in range(len(counts)))
        if found == counts:
            return seed
    raise AssertionError(counts)


def test_four_iterations_of_drafts_take_what_a_hand_reckons():
    # 6000 + 18 tokens + 0.05 L + 300 k us; sums 3, 4, 8, 10 of the 9 tokens wanted.
    seed = seed_of(2, 0, 3, 1)
    times = served(engine_of(SHARES), [1000], [10], seed).times
    plain = served(replace(engine_of(SHARES), speculation=None), [1000], [10]).times
    case = Case(
        Trace(np.array([1000]), np.array([10]), np.zeros(1)),
        TABLES,
        engine_of(SHARES),
        1,
    )
    drawn = judge_v1(*case, seed=seed, line=False).requests[0]

    took_s = times.finish_s - times.first_token_s
    assert took_s * 1e6 == pytest.approx([28_089.00], abs=1e-6)
    drawn_s = drawn.token_s[-1] - drawn.token_s[0]
    assert drawn_s * 1e6 == pytest.approx(28_088.95, abs=1e-6)
    plain_s = plain.finish_s - plain.first_token_s
    assert plain_s * 1e6 == pytest.approx([54_614.25], abs=1e-6)


@pytest.mark.parametrize(
    ("method", "prompt", "blocks"),
    [
        ("eagle3", 1000, 63),
        ("eagle3", 1005, 64),
        ("ngram", 1000, 63),
        ("ngram", 1005, 64),
    ],
)
def test_blocks_hold_the_verified_tokens_and_the_lookahead(method, prompt, blocks):
    engine = engine_of(SHARES, method=method)
    steps = served(engine, [prompt], [10], record_iterations=True).iterations.steps

    assert 1000 - steps["free_blocks"][1] == blocks


def test_the_budget_goes_to_the_first_admitted_then_what_is_left_and_the_rest_sit_out():
    engine = engine_of(SHARES, max_num_batched_tokens=66)
    log = served(engine, [2] * 20, [50] * 20, record_iterations=True).iterations

    assert log.steps["gen_reqs"][1] == 17
    first, end = log.steps["entries_end"][:2]
    assert log.entries["row"][first:end].tolist() == list(range(17))
    assert log.entries["scheduled"][first:end].tolist() == [4] * 16 + [2]


@pytest.mark.parametrize("accepted", [0.0, 1.0])
def test_a_request_gets_no_more_tokens_than_it_verifies(accepted):
    # A budget of 6, four tokens an iteration: A has four of it and B the other two,
    # until A has its eight tokens after the first.
    engine = engine_of((accepted,) * 3, max_num_seqs=2, max_num_batched_tokens=6)
    log = served(engine, [2, 2], [9, 9], record_iterations=True).iterations

    entries = [tuple(entry) for entry in log.entries.tolist()]
    alone = [entry for entry in entries if entry[0] == 1]
    if accepted:
        assert alone == [(1, 0, 2), (1, 2, 2), (1, 4, 2), (1, 6, 4)]
    else:
        cut = [(1, 2 + k, 2) for k in range(8)]
        assert alone == [(1, 0, 2), *cut]


@pytest.mark.parametrize(
    ("counts", "iterations"), [((2, 0, 3, 1), 4), ((2, 0, 0, 3), 5)]
)
def test_a_request_is_computed_once_more_unless_one_token_was_enough(
    counts, iterations
):
    engine = engine_of(SHARES, sync=False)
    log = served(engine, [1000], [10], seed_of(*counts), record_iterations=True)

    assert (log.iterations.steps["gen_reqs"] == 1).sum() == iterations


@pytest.mark.parametrize(("batch", "needed"), [(1, 1.157), (8, 1.204), (64, 1.421)])
def test_the_tokens_that_pay_for_an_iteration_are_those_of_the_hand(batch, needed):
    drafted = Speculation("mtp", SHARES, draft_s=DRAFT_S).tables(TABLES)
    context = 1000 * batch

    with_s, without_s = (
        tables.decode_s[batch] + tables.decode_context_s[batch] * context
        for tables in (drafted, TABLES)
    )

    assert with_s / without_s == pytest.approx(needed, abs=5e-4)


def test_a_length_of_two_with_one_draft_is_a_plain_run_of_half_the_iterations():
    drafted = served(engine_of(rates_of_length(2.0, 1)), [1000], [9], 7)
    plain = served(replace(engine_of(SHARES), speculation=None), [1000], [5])

    assert drafted.iteration_count == plain.iteration_count == 5


@pytest.mark.thorough
@settings(deadline=None, max_examples=2 * EXAMPLES)
@given(case=cases(replicas=3), seed=st.integers(0, 2**20))
def test_no_drafts_are_todays_scheduler_to_the_bit(case, seed):
    none = Speculation("ngram", ())
    drafted = Case(
        case.trace,
        case.tables,
        replace(case.engine, speculation=none),
        case.replica_count,
    )

    # A router that reads the replicas cuts their jumps at other points.
    one = case.simulated("round-robin", seed=seed).times
    other = drafted.simulated("round-robin", seed=seed).times

    for name in ("scheduled_s", "first_token_s", "finish_s", "longest_gap_s"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist()
    assert one.preemptions.tolist() == other.preemptions.tolist()
    assert one.cached_tokens.tolist() == other.cached_tokens.tolist()


@given(output=st.integers(1, 200), drafts=st.integers(1, 4), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=2 * EXAMPLES)
def test_drafts_all_accepted_or_all_rejected_take_the_iterations_they_must(
    output, drafts, seed
):
    for share, each in ((0.0, 1), (1.0, 1 + drafts)):
        engine = engine_of((share,) * drafts)
        count = served(engine, [100], [output], seed).iteration_count
        assert count == 1 + -(-(output - 1) // each)


@given(
    output=st.integers(1, 100),
    seed=st.integers(0, 999),
    shares=st.lists(
        st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=4
    ),
)
@settings(deadline=None, max_examples=2 * EXAMPLES)
def test_more_acceptance_never_lengthens_a_request_alone(output, seed, shares):
    tables = TABLES._replace(
        decode_context_s=0 * TABLES.decode_context_s,
        fused_context_s=0 * TABLES.fused_context_s,
    )
    more = sorted((max(pair) for pair in shares), reverse=True)
    fewer = sorted((min(pair) for pair in shares), reverse=True)
    trace = Trace(np.array([50]), np.array([output]), np.zeros(1))

    ends_s = [
        simulate(
            trace, fleet_of(tables, engine_of(tuple(each)), 1), seed=seed
        ).times.finish_s[0]
        for each in (more, fewer)
    ]

    assert ends_s[0] <= ends_s[1]


def test_iterations_have_the_mean_and_variance_of_a_renewal_process():
    # E[N] = (m + E[overshoot]) / A by Wald; N / m scatters as sd(A) / A^1.5.
    shares = (0.8, 0.5, 0.25)
    mean = 1 + sum(shares)
    second = sum((2 * k + 1) * share for k, share in enumerate(shares, start=1)) + 1
    output = 401
    rng = np.random.default_rng(1)
    n = 4000
    trace = Trace(np.full(n, 8), np.full(n, output), np.cumsum(rng.exponential(1, n)))
    engine = engine_of(shares)
    log = simulate(
        trace, fleet_of(TABLES, engine, 4), record_iterations=True, seed=3
    ).iterations
    counts = np.bincount(log.entries["row"], minlength=n) - 1

    variance = second - mean**2
    overshoot = (second / mean - 1) / 2  # of whole steps, long after the start
    expected = (output - 1 + overshoot) / mean
    error = np.sqrt(variance * expected / mean**2 / n)
    assert counts.mean() == pytest.approx(expected, abs=4 * error)
    assert counts.var() == pytest.approx(
        variance * (output - 1) / mean**3, rel=4 * np.sqrt(2 / n) + 0.02
    )


def test_another_fleet_changes_no_draw():
    rng = np.random.default_rng(5)
    n = 300
    trace = Trace(
        rng.integers(8, 200, n),
        rng.integers(1, 200, n),
        np.cumsum(rng.exponential(0.05, n)),
    )
    counts = []
    for replicas, router in ((1, "jsq"), (3, "round-robin")):
        fleet = fleet_of(TABLES, engine_of(SHARES), replicas, router=router)
        log = simulate(trace, fleet, record_iterations=True, seed=11).iterations
        decodes = log.entries[log.entries["scheduled"] == 4]
        decodes = decodes[decodes["computed"] >= trace.prompt_tokens[decodes["row"]]]
        counts.append(np.bincount(decodes["row"], minlength=n))

    assert counts[0].tolist() == counts[1].tolist()


@pytest.mark.thorough
@settings(deadline=None, max_examples=4 * EXAMPLES)
@given(case=speculative_cases(), seed=st.integers(0, 2**20))
def test_all_blocks_are_free_at_the_end_and_held_ones_never_fewer_than_tokens(
    case, seed
):
    simulation = case.simulated("jsq", seed=seed, record_iterations=True)
    log = simulation.iterations
    assert log is not None
    blocks = case.engine.kv_blocks - 1

    assert (log.steps["free_blocks"] >= 0).all()
    assert (log.steps["free_blocks"] <= blocks).all()
    produced = case.trace.output_tokens
    assert simulation.times.output_tokens.tolist() == produced.tolist()
    late = Trace(
        np.array([1]), np.array([1]), np.array([simulation.times.finish_s.max() + 1e6])
    )
    # One more request, long after all others, finds every block free but its own.
    both = Trace(
        np.concatenate([case.trace.prompt_tokens, late.prompt_tokens]),
        np.concatenate([produced, late.output_tokens]),
        np.concatenate([case.trace.arrival_s, late.arrival_s]),
        prefix_group=np.concatenate([case.trace.prefix_group, [-1]]),
        prefix_tokens=np.concatenate([case.trace.prefix_tokens, [0]]),
    )
    again = Case(both, case.tables, case.engine, 1)
    steps = again.simulated("jsq", seed=seed, record_iterations=True).iterations.steps
    own = 1 + case.engine.speculation.lookahead_tokens
    bounded = case.engine.bounded_groups * min(1, case.engine.bounded_blocks)
    held = -(-own // case.engine.block_size) + bounded
    assert steps["free_blocks"][-1] == blocks - held


@pytest.mark.thorough
def test_contexts_on_a_line_change_no_mean_time_by_a_thousandth():
    rng = np.random.default_rng(2)
    n = 400
    trace = Trace(
        rng.integers(50, 800, n),
        rng.integers(20, 300, n),
        np.cumsum(rng.exponential(0.12, n)),
    )
    tables = linear_tables(6e-3, 18e-6, 0, 18e-6, 2e-7, max_batch=64, max_tokens=2048)
    case = Case(trace, tables, engine_of(SHARES, kv_blocks=8000), 1)

    gaps_s = [
        np.mean(
            [
                (each.token_s[-1] - each.token_s[0]) / (each.output_count - 1)
                for each in judge_v1(*case, seed=4, line=line).requests
            ]
        )
        for line in (True, False)
    ]

    assert gaps_s[0] == pytest.approx(gaps_s[1], rel=1e-3)


@pytest.mark.thorough
@given(
    case=speculative_cases(),
    report=st.sampled_from(["end", "launch"]),
    prefills=st.integers(1, 2),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=EXAMPLES)
def test_two_pools_with_drafts_jump_as_they_step(case, report, prefills, seed):
    """What each step does is that of recordings: ``golden/data/disaggregated_drafts``.

    All tokens are given: each request takes its drawn iterations, in every fleet.
    """
    replica = Configuration(case.engine, case.tables)
    fleet = apart(replica, prefills, case.replica_count, report)

    stepped, jumped = (
        simulate(case.trace, fleet, seed=seed, longest_jump=jump).times
        for jump in (1, 2**62)
    )

    for name in ("first_token_s", "finish_s", "longest_gap_s", "preemptions"):
        np.testing.assert_allclose(
            getattr(stepped, name), getattr(jumped, name), rtol=0, atol=1e-9
        )


def test_pools_whose_drafts_differ_or_whose_hand_off_gives_a_token_are_refused():
    engine = engine_of(SHARES)
    trace = Trace(np.array([10]), np.array([5]), np.zeros(1))
    plain = Pool(Configuration(replace(engine, speculation=None), TABLES), 1)
    drafting = Pool(Configuration(engine, TABLES), 1)

    with pytest.raises(InputError, match="expected the same drafts"):
        Deployment((plain, drafting), hand_off="nixl:block=1ms")
    with pytest.raises(InputError, match="or hand-off nixl"):
        simulate(
            trace, Deployment((drafting, drafting), hand_off="distserve:block=1ms")
        )


def test_another_scheduler_or_fleet_with_drafts_is_refused():
    engine = engine_of(SHARES)
    trace = Trace(np.array([10]), np.array([5]), np.zeros(1))

    with pytest.raises(InputError, match="scheduler orca is not"):
        simulate(trace, fleet_of(TABLES, engine, 1, scheduler="orca"))
    few = replace(engine, max_num_batched_tokens=3, max_num_seqs=1)
    with pytest.raises(InputError, match="expected at least 4"):
        simulate(trace, fleet_of(TABLES, few, 1))
