"""What each class attains, against its own limits and target."""

import logging
from dataclasses import replace

import numpy as np
import pytest

from capplan.planning.evaluate.classes import class_results, own_targets
from capplan.planning.evaluate.judgement import Judge
from capplan.planning.evaluate.run import simulate_deployment
from capplan.planning.settings.plan import SimulateSettings
from capplan.simulator.results.sample import sample_of
from capplan.workload.slo import RequestSlo, Slo
from tests.planning.evaluate.test_judgement import simulation_of

CHAT, BATCH = RequestSlo(ttft_s=1.0), RequestSlo(e2e_s=4.0)
SLO = Slo(None, 0.9, {"chat": CHAT, "batch": BATCH}, {"chat": 0.5, "batch": 0.75})


def simulated():
    """Chat has TTFT of 0.5 and 2 s, batch e2e of 3, 3, 3 and 5 s."""
    return simulation_of(
        [0, 1, 2, 3, 4, 5],
        [0.5, 3, 2.5, 3.5, 4.5, 5.5],
        [1.5, 4, 5, 6, 7, 10],
        [11, 1, 1, 1, 1, 1],
        classes=[0, 0, 1, 1, 1, 1],
    )


def judged(slo=SLO, simulation=None, count=1):
    simulation = simulation or simulated()
    samples = [sample_of(simulation, slo)] * count
    return Judge(slo, simulation.class_names).judgement(samples)


def test_the_table_of_classes_worked_by_hand():
    judgement = judged()

    chat, batch = judgement.classes
    assert (chat.class_name, chat.slo_text) == ("chat", "ttft ≤ 1 s")
    assert (chat.attainment, chat.attainment_of) == (0.5, ("chat",))
    assert (chat.slo_attainment, chat.counted_request_count) == (0.5, 2)
    assert chat.ttft_p99_s == pytest.approx(0.5 + 0.99 * 1.5)
    assert chat.tpot_p99_s == pytest.approx(0.1)  # of the one with several tokens
    assert chat.e2e_p99_s == pytest.approx(1.5 + 0.99 * 1.5)
    assert (batch.slo_text, batch.attainment) == ("e2e ≤ 4 s", 0.75)
    assert (batch.slo_attainment, batch.counted_request_count) == (0.75, 4)
    assert np.isnan(batch.tpot_p99_s)
    assert judgement.meets
    assert own_targets(judgement.classes)


def test_one_class_has_no_table():
    simulation = simulation_of([0, 1], [0.5, 1.5], [1, 2], [1, 1])

    assert judged(Slo(CHAT), simulation).classes == ()


def test_classes_without_limits_of_their_own_attain_their_target_together():
    judgement = judged(Slo(CHAT, 0.9))

    assert [row.attainment_of for row in judgement.classes] == [("chat", "batch")] * 2
    assert [row.attainment for row in judgement.classes] == [0.9, 0.9]
    assert not own_targets(judgement.classes)


def test_limits_in_the_name_of_a_class_are_not_a_class():
    simulation = replace(simulated(), class_names=("chat/ttft=1s", "chat/ttft=3s"))

    assert judged(Slo(CHAT), simulation).classes == ()


def test_the_interval_of_a_class_is_that_of_its_own_requests():
    """Batch never misses, whatever chat does in the same windows of time."""
    n = 4000
    first_s = np.arange(n, dtype=float)
    ttft_s = np.where((np.arange(n) % 2 == 0) & (np.arange(n) % 1000 < 300), 9.0, 0.5)
    simulation = simulation_of(
        first_s, first_s + ttft_s, first_s + 10, [2] * n, [0, 1] * (n // 2)
    )
    slo = Slo(CHAT, 0.5, targets={"batch": 0.9})

    chat, batch = judged(slo, simulation).classes

    assert chat.slo_attainment == pytest.approx(0.7)
    low, high = chat.slo_attainment_interval
    assert low < 0.68 < 0.72 < high  # chat misses in runs of 300
    assert batch.slo_attainment_interval[1] == pytest.approx(1.0)
    assert batch.slo_attainment_interval[0] > 0.998


def test_several_samples_are_one_table():
    once, thrice = judged(), judged(count=3)

    for one, three in zip(once.classes, thrice.classes, strict=True):
        assert three.counted_request_count == 3 * one.counted_request_count
        assert three.slo_attainment == one.slo_attainment


def test_more_classes_than_are_kept_apart_have_no_interval(monkeypatch):
    monkeypatch.setattr("capplan.simulator.results.sample._MOST_CLASSES", 1)

    chat, _ = judged().classes

    assert chat.slo_attainment == 0.5
    assert np.isnan(chat.slo_attainment_interval).all()
    assert np.isnan(chat.ttft_p99_s)


@pytest.mark.parametrize("seed", range(5))
def test_the_table_agrees_with_the_requests_one_by_one(seed):
    """The slow judge: each class picked out and counted alone."""
    rng = np.random.default_rng(seed)
    n = 300
    arrival_s = np.sort(rng.uniform(0, 100, n))
    first_s = arrival_s + rng.exponential(0.8, n)
    finish_s = first_s + rng.exponential(3, n)
    output = rng.integers(1, 4, n)
    of = rng.integers(0, 2, n).tolist()
    simulation = simulation_of(arrival_s, first_s, finish_s, output, of)

    sample = sample_of(simulation, SLO)
    rows = class_results(
        [sample], SLO, simulation.class_names, lambda group: (0.0, 1.0)
    )

    times = simulation.times
    for k, row in enumerate(rows):
        mine = np.array(of) == k
        ttft_s, e2e_s = times.ttft_s[mine], times.e2e_s[mine]
        met = ttft_s <= 1.0 if k == 0 else e2e_s <= 4.0
        assert row.slo_attainment == pytest.approx(met.mean())
        assert row.ttft_p99_s == pytest.approx(np.quantile(ttft_s, 0.99))
        assert row.e2e_p99_s == pytest.approx(np.quantile(e2e_s, 0.99))
        tpot_s = times.tpot_s[mine]
        tpot_s = tpot_s[~np.isnan(tpot_s)]
        assert row.tpot_p99_s == pytest.approx(np.quantile(tpot_s, 0.99))


def test_a_streamed_run_has_the_same_table_but_for_the_percentiles(tmp_path):
    path = tmp_path / "own.csv"
    rows = "".join(f"{i / 20},{50 + i % 7},5,{'ab'[i % 3 == 0]}\n" for i in range(400))
    path.write_text(f"arrival_s,prompt_tokens,output_tokens,class\n{rows}")
    kept, streamed = (
        simulate_deployment(
            SimulateSettings(
                trace=path,
                latency_ms="5,0.01,0,0.1,0",
                kv_blocks=500,
                replicas=1,
                slo=("a:ttft=30ms", "b:e2e=60ms"),
                stream=stream,
            )
        ).judgement.classes
        for stream in (False, True)
    )

    assert {row.class_name for row in kept} == {"a", "b"}
    by_name = {row.class_name: row for row in streamed}
    for row in kept:
        other = by_name[row.class_name]
        assert other.slo_attainment == pytest.approx(row.slo_attainment)
        assert other.slo_attainment_interval == pytest.approx(
            row.slo_attainment_interval
        )
        assert np.isnan(other.ttft_p99_s)


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_streamed_run_tells_what_it_read_as_one_that_is_held(
    tmp_path, monkeypatch, is_cut
):
    messages = []
    logger = logging.getLogger("capplan.planning.load.traffic")
    monkeypatch.setattr(logger, "info", lambda text, *of: messages.append(text % of))

    path = tmp_path / "own.jsonl"
    row = '{{"arrival_s": {}, "prompt_tokens": 50, "output_tokens": {}}}\n'
    text = "".join(row.format(i, i % 3) for i in range(30))
    path.write_text(text[: -5 * is_cut or None])
    asked = {"latency_ms": "5,0.01,0,0.1,0", "kv_blocks": 500, "replicas": 1}

    for stream in (False, True):
        simulate_deployment(
            SimulateSettings(trace=path, salvage=is_cut, stream=stream, **asked)
        )

    held, streamed = messages
    assert held == streamed
    last = 28 if is_cut else 29
    assert f"{19 if is_cut else 20} requests over {last - 1} s" in held
    assert "10 left out (10 without output tokens)" in held
