"""Laws of a plan: what asks for less never needs more, and every row is simulated."""

from dataclasses import dataclass, replace
from os import environ
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capplan.planning.evaluate.run import simulate_deployment
from capplan.planning.plan.plan import plan
from capplan.planning.plan.result import Plan
from capplan.planning.settings.plan import PlanSettings, SimulateSettings


@dataclass(frozen=True)
class Case:
    """A small request for a plan; its arrivals replayed or drawn."""

    latency_ms: tuple[float, ...]
    kv_blocks: int
    max_num_seqs: int
    budget_tokens: int
    rate_per_s: float
    drawn: bool
    seed: int
    limits: tuple[tuple[str, float], ...]  # by "ttft", "tpot", "e2e" [s]
    attainment: float
    kept_share: float = 1.0  # of a replayed trace, the others deleted
    own_class: float | None = None  # TTFT of a tenth of the requests [s]

    def settings(self, folder) -> dict[str, Any]:
        """Return the settings of the plan; a replayed trace is written."""
        slo = [",".join(f"{name}={limit_s:g}s" for name, limit_s in self.limits)]
        if self.own_class is not None:
            slo.append(f"vip:ttft={self.own_class:g}s")
        common = {
            "llm": "Llama-3.1-8B",
            "gpu": "H100-SXM",
            "tp": 1,
            "latency_ms": self.latency_ms,
            "kv_blocks": self.kv_blocks,
            "max_num_seqs": self.max_num_seqs,
            "max_num_batched_tokens": self.budget_tokens,
            "slo": tuple(slo),
            "attainment": self.attainment,
            "seed": self.seed,
        }
        if self.drawn:
            lengths = "prompt=uniform(low=1,high=200),output=uniform(low=2,high=40)"
            return common | {
                "workload": f"synthetic:{lengths},n=400",
                "rate": self.rate_per_s,
            }
        return common | {"trace": str(self.trace(folder))}

    def trace(self, folder):
        """Write the replayed trace; a deleted request leaves the others as they are."""
        rng = np.random.default_rng(self.seed)
        n = 400
        arrival_s = np.cumsum(rng.exponential(1 / self.rate_per_s, n)).round(6)
        prompts = np.clip(rng.lognormal(4.1, 0.6, n), 1, 400).astype(int)
        outputs = rng.integers(2, 41, n)
        kept = rng.random(n) < self.kept_share
        kept[0] = True
        vip = (rng.random(n) < 0.1) & (self.own_class is not None)
        path = folder / "trace.csv"
        rows = zip(arrival_s, prompts, outputs, vip, strict=True)
        path.write_text(
            "arrival_s,prompt_tokens,output_tokens,class\n"
            + "".join(
                f"{at_s},{prompt},{output},{'vip' if own else 'all'}\n"
                for (at_s, prompt, output, own), keep in zip(rows, kept, strict=True)
                if keep
            )
        )
        return path


CASES = st.builds(
    Case,
    latency_ms=st.tuples(
        st.sampled_from([2.0, 8.0, 20.0]),
        st.sampled_from([0.02, 0.1, 0.3]),
        st.sampled_from([0.0, 1e-4]),
        st.sampled_from([0.1, 0.5, 2.0]),
        st.sampled_from([0.0, 1e-3]),
    ),
    kv_blocks=st.sampled_from([40, 80, 400]),
    max_num_seqs=st.sampled_from([4, 16, 64]),
    budget_tokens=st.sampled_from([64, 256, 2048]),
    rate_per_s=st.sampled_from([5.0, 20.0, 60.0]),
    drawn=st.booleans(),
    seed=st.integers(0, 10_000),
    limits=st.fixed_dictionaries(
        {},
        optional={
            "ttft": st.sampled_from([0.1, 0.3, 1.0, 5.0]),
            "tpot": st.sampled_from([0.015, 0.03, 0.1]),
            "e2e": st.sampled_from([0.5, 2.0, 10.0]),
        },
    )
    .filter(bool)
    .map(lambda limits: tuple(sorted(limits.items()))),
    attainment=st.sampled_from([0.7, 0.9, 0.99]),
)


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """Return what plans a case."""
    folder = tmp_path_factory.mktemp("laws")

    def of(case: Case) -> Plan:
        return plan(PlanSettings(**case.settings(folder)))

    return of


def needs_no_more(less: Plan, more: Plan) -> bool:
    """Return whether a plan that asks for less needs no more, or cannot be told."""
    if more.best is None:
        return True
    if less.best is None:
        # Those left of a trace may hold a larger share that no fleet serves in time.
        return "runs alone" in str(less.infeasible_reason)
    fewer, count = less.best, more.best.replica_count
    if fewer.replica_count <= count or not fewer.decided or not more.best.decided:
        return True
    at_count = [probe for probe in fewer.probes if probe.replica_count == count]
    return bool(at_count) and is_close(at_count[0], less.attainment)


def is_close(probe, target: float) -> bool:
    """Return whether chance may explain on which side of the target a count is."""
    low, high = probe.slo_attainment_interval
    return probe.meets is None or low <= target <= high


EXAMPLES = environ.get("LAW_EXAMPLES")
"""Examples of each law for a search by hand, drawn anew each time."""
LAW = settings(
    max_examples=int(EXAMPLES or 5),
    deadline=None,
    derandomize=EXAMPLES is None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.thorough
@LAW
@given(case=CASES, by=st.sampled_from([1.2, 2.0, 10.0]), data=st.data())
def test_a_looser_limit_never_needs_more(planned, case, by, data):
    name = data.draw(st.sampled_from([name for name, _ in case.limits]))
    looser = replace(
        case, limits=tuple((n, x * by if n == name else x) for n, x in case.limits)
    )

    assert needs_no_more(planned(looser), planned(case))


@pytest.mark.thorough
@LAW
@given(case=CASES.filter(lambda case: len(case.limits) > 1), data=st.data())
def test_a_limit_dropped_never_needs_more(planned, case, data):
    dropped = data.draw(st.sampled_from(case.limits))
    without = replace(case, limits=tuple(x for x in case.limits if x != dropped))

    assert needs_no_more(planned(without), planned(case))


@pytest.mark.thorough
@LAW
@given(case=CASES, target=st.sampled_from([0.5, 0.8]))
def test_a_lower_target_never_needs_more(planned, case, target):
    lower = replace(case, attainment=target * case.attainment)

    assert needs_no_more(planned(lower), planned(case))


@pytest.mark.thorough
@LAW
@given(case=CASES, share=st.sampled_from([0.5, 0.8, 0.95]))
def test_fewer_arrivals_never_need_more(planned, case, share):
    thinned = (
        replace(case, rate_per_s=case.rate_per_s * share)
        if case.drawn
        else replace(case, kept_share=share)
    )

    assert needs_no_more(planned(thinned), planned(case))


@pytest.mark.slow
@LAW
@given(
    case=CASES,
    ttft_s=st.sampled_from([0.1, 0.3, 1.0, 5.0]),
    times=st.sampled_from([2, 10]),
)
def test_more_kv_never_needs_more_for_the_ttft(planned, case, ttft_s, times):
    """Of the TPOT it is not true: little KV keeps requests out of the batch."""
    case = replace(case, limits=(("ttft", ttft_s),))
    larger = replace(case, kv_blocks=times * case.kv_blocks)

    assert needs_no_more(planned(larger), planned(case))


@pytest.mark.thorough
@LAW
@given(
    case=CASES.map(lambda case: replace(case, drawn=False)),
    own=st.sampled_from([0.05, 0.2, 1.0]),
)
def test_a_class_of_its_own_never_lowers_the_count(planned, case, own):
    with_class = replace(case, own_class=own)

    assert needs_no_more(planned(case), planned(with_class))


@pytest.mark.thorough
@LAW
@given(case=CASES)
def test_every_row_is_what_simulate_says_of_that_count(planned, case, tmp_path):
    row = planned(case).best
    if row is None:
        return

    budget = row.configuration.engine.max_num_batched_tokens
    given_settings = case.settings(tmp_path) | {"max_num_batched_tokens": budget}
    run = simulate_deployment(
        SimulateSettings(**given_settings, replicas=row.replica_count)
    )

    judged = run.judgement
    assert judged.attainment == row.run.judgement.attainment
    assert judged.counted_request_count == row.run.judgement.counted_request_count
    assert judged.meets or not row.decided
