"""Cases of AccelGen worked by hand: S_pf 40 tokens, T_pf 50 ms, long from 30 tokens."""

import numpy as np
import pytest
from worked import TABLES, engine, ms

import capplan
from capplan.errors import InputError
from capplan.simulator.simulate import simulate
from capplan.workload.slo import Slo, parse_slo
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

ITS_OWN = Slo(None)
LOOSE = "ttft=0.4s,tbt=1s"


def served(requests, blocks=64, settings="", t_pf_s=0.05, slo=ITS_OWN, **engine_has):
    """Serve requests: arrival [ms], prompt and output [tokens], limits."""
    arrival_ms, prompts, outputs, limits = zip(*requests, strict=True)
    trace = Trace(
        np.array(prompts),
        np.array(outputs),
        np.array(arrival_ms) / 1e3,
        request_class=np.arange(len(requests)),
        class_names=tuple(f"{'ABC'[k]}/{own}" for k, own in enumerate(limits)),
    )
    policy = f"accelgen:s_pf=40,t_pf_s={t_pf_s},gamma_s=0.02,long_tokens=30,{settings}"
    given = engine(blocks, **{"max_num_batched_tokens": 1024, **engine_has})
    tables = TABLES.reaching(1024)
    policy = policy.rstrip(",")
    return simulate(trace, fleet_of(tables, given, 1, scheduler=policy), slo=slo).table


LONG_BESIDE_CHAT = [(0, 8, 4, "ttft=0.4s,tbt=0.025s"), (5, 60, 1, LOOSE)]


def test_a_chunk_is_as_long_as_the_strictest_limit_scaled_through_0():
    # AG1. 0-18 A:8 | S_b = 40 * 25 / 50 = 20: 18-48 A B:19 | 78 | 108, A ends |
    # 108-121 B:3
    times = served(LONG_BESIDE_CHAT)

    assert ms(times.first_token_s) == [18, 121]
    assert ms(times.finish_s) == [108, 121]
    assert ms(times.longest_gap_s) == [30, 0]
    assert times.late_gaps.tolist() == [3, 0]


def test_an_urgent_prompt_runs_before_a_calm_one_that_does_not_fit():
    # AG2. 0-30 A:20 | B has slack 91 - 30 - 50 = 11, S_b = 40: 30-61 A B:20, not C:24 |
    # 61-95 C:24
    times = served(
        [
            (0, 20, 2, "ttft=0.5s,tbt=0.05s"),
            (1, 20, 1, "ttft=0.09s,tbt=1s"),
            (2, 24, 1, "ttft=0.3s,tbt=1s"),
        ]
    )

    assert ms(times.finish_s) == [61, 61, 95]


TWO_LONG = [(0, 50, 1, "ttft=1s,tbt=1s"), (0, 50, 1, "ttft=1.005s,tbt=1s")]


def test_long_prompts_are_served_one_at_a_time():
    # AG3. S_b = 800 would hold both: 0-60 A:50 | 60-120 B:50
    assert ms(served(TWO_LONG).finish_s) == [60, 120]
    assert ms(served(TWO_LONG, settings="era=0").finish_s) == [110, 110]


NEAREST = [
    (0, 6, 1, "ttft=0.4s,tbt=1s"),
    (0, 17, 1, "ttft=0.41s,tbt=1s"),
    (0, 4, 1, "ttft=0.415s,tbt=1s"),
]


def test_the_prompts_are_taken_that_leave_the_least_of_tokens_and_kv():
    # AG4. Free: 320 tokens, 20 of KV. A leaves (314, 12), B (303, 0), C (316, 16):
    # 0-27 B:17 | 27-47 A:6 C:4
    assert ms(served(NEAREST, blocks=5).finish_s) == [47, 27, 47]


def test_without_batching_prompts_are_taken_in_order():
    # 0-20 A:6 C:4, and B:17 does not fit | 20-47 B:17
    times = served(NEAREST, blocks=5, settings="batching=0")

    assert ms(times.finish_s) == [20, 47, 20]


def test_without_batching_the_engine_s_budget_is_filled():
    # 0-18 A:8 | 18-89 A B:60 | 100 | 111
    times = served(LONG_BESIDE_CHAT, settings="batching=0")

    assert ms(times.finish_s) == [111, 89]


def decodes(first_tbt_s, second_tbt_s):
    return [
        (0, 4, 4, f"ttft=0.4s,tbt={first_tbt_s}s"),
        (0, 4, 4, f"ttft=0.4s,tbt={second_tbt_s}s"),
    ]


def test_the_decode_with_less_slack_gets_the_last_block_and_the_other_pauses():
    # AG5. 0-18 A:4 B:4 | both need a block, 1 is free: A 29 40 51, ends | B 62 73 84
    times = served(decodes(0.06, 0.09), blocks=3)

    assert ms(times.finish_s) == [51, 84]
    assert times.preemptions.tolist() == [0, 0]
    assert ms(times.paused_s) == [0, 33]
    assert ms(times.longest_gap_s) == [11, 44]


def test_without_ordering_the_earlier_arrival_gets_the_last_block():
    requests = decodes(0.09, 0.06)

    assert ms(served(requests, 3).finish_s) == [84, 51]
    assert ms(served(requests, 3, settings="ordering=0").finish_s) == [51, 84]


def test_without_chunking_an_urgent_prompt_runs_whole_and_a_calm_one_waits():
    # B urgent: 0-18 A:8 | 18-89 A B:60 | 100 | 111. B calm, 60 above S_b = 20:
    # A 29 40 51, ends | 51-121 B:60
    urgent = [LONG_BESIDE_CHAT[0], (5, 60, 1, "ttft=0.1s,tbt=1s")]

    assert ms(served(urgent, settings="chunking=0").finish_s) == [111, 89]
    assert ms(served(LONG_BESIDE_CHAT, settings="chunking=0").finish_s) == [51, 121]


def test_an_affine_budget_keeps_the_limit():
    # AG1 with S_b = 40 * (25 - 10) / (50 - 10) = 15: 18-43 A B:14 | 68 | 93, A ends |
    # 93-121 B:18
    times = served(LONG_BESIDE_CHAT, settings="affine=1")

    assert ms(times.finish_s) == [93, 121]
    assert ms(times.longest_gap_s) == [25, 0]


def test_a_bounded_chunk_keeps_the_strictest_limit_by_the_time_of_the_iteration():
    # AG1: S_b is 20, and 10 + T + 1 ms are at most 25 with T = 14: 18-43 A B:14 | 68 |
    # 93, A ends | 93-121 B:18
    times = served(LONG_BESIDE_CHAT, settings="bounded=1")

    assert ms(times.finish_s) == [93, 121]
    assert ms(times.longest_gap_s) == [25, 0]
    assert times.late_gaps.tolist() == [0, 0]


def test_eq_6_does_not_keep_a_tbt_of_100_ms_and_a_bounded_budget_does():
    def within_tbt(settings):
        run = capplan.simulate(
            workload="mixed",
            rate=4,
            llm="Llama-3.1-8B",
            gpu="H100-SXM",
            tp=1,
            slo="ttft=5s,tbt=100ms",
            scheduler=f"accelgen{settings}",
        )
        return run.judgement.attainment.by_limit["tbt"]

    assert within_tbt("") < 0.6
    assert within_tbt(":bounded=1") == 1


def test_a_short_calm_prompt_that_breaks_the_limit_waits_when_bounded():
    # 10 + 18 + 1 ms are above A's 25: 18-29 A | 40 | 51, A ends | 79 B:18
    requests = [LONG_BESIDE_CHAT[0], (5, 18, 1, LOOSE)]

    assert ms(served(requests).finish_s) == [69, 47]
    assert ms(served(requests, settings="bounded=1").finish_s) == [51, 79]


def test_a_limit_on_ttft_bounds_no_iteration():
    # S_b = 40 * 6 / 50 = 4 tokens, which take 14 ms.
    alone = (0, 4, 1, "ttft=0.006s,tbt=1s")

    assert ms(served([alone], settings="bounded=1").finish_s) == [14]


def test_a_jct_is_shared_out_and_what_an_iteration_is_early_or_late_counts_later():
    # T_pf 500 ms. Shares: A 500 / (1 + 4) = 100 ms, B 110, C 40 / (1 + 1) = 20.
    # 0-18 A:4 B:4 | C is urgent and S_b = 40 * 20 / 500 = 1. Deadlines A 200, B 220:
    # A 29 | A 300, B 220: B 40 | A 300, B 330: A 51 | A 400, B 330: B 62 | A 73, ends |
    # B 84, ends | C:1 95, 106, 117, 128
    times = served(
        [(0, 4, 4, "e2e=0.5s"), (0, 4, 4, "e2e=0.55s"), (10, 4, 1, "e2e=0.04s")],
        t_pf_s=0.5,
    )

    assert ms(times.first_token_s) == [18, 18, 128]
    assert ms(times.finish_s) == [73, 84, 128]
    assert ms(times.longest_gap_s) == [22, 22, 0]


def test_a_calm_short_prompt_above_the_budget_waits_until_it_is_urgent():
    # Slack 1000 - 50 - t is T_max = 50 at 900 ms: 900-926 A:16 | 926-940 A:4.
    alone = (0, 20, 1, "ttft=1s,tbt=1s")

    assert ms(served([alone], max_num_batched_tokens=16).finish_s) == [940]

    # B comes meanwhile, its slack within 20 ms of A's: 500-514 B:4. Otherwise it waits
    # behind A: 926-944 A:4 B:4.
    near = [alone, (500, 4, 1, "ttft=0.515s,tbt=1s")]
    far = [alone, (500, 4, 1, "ttft=1s,tbt=1s")]
    assert ms(served(near, max_num_batched_tokens=16).finish_s) == [940, 514]
    assert ms(served(far, max_num_batched_tokens=16).finish_s) == [944, 944]


def test_the_holder_with_most_slack_is_evicted_when_nothing_can_run():
    # 0-18 A:4 B:4 take all | both need a block: B has more slack and loses its KV;
    # 18-29 A | 40 | 51 A ends | 51-66 B:5 | 77 | 88
    times = served(decodes(0.06, 0.09), blocks=2)

    assert ms(times.finish_s) == [51, 88]
    assert times.preemptions.tolist() == [0, 1]


def test_t_pf_is_read_from_the_tables_with_the_scheduler_s_own_time():
    # T_pf = 10 + 40 + 1 ms: S_b = floor(40 * 25 / 51) = 19: B:18, 18, 18 and 6.
    times = served(LONG_BESIDE_CHAT, t_pf_s=0, settings="overhead_s=0.001")

    # 0-19 A:8 | 19-49 A B:18 | 79 | 109, A ends | 109-126 B:6
    assert ms(times.finish_s) == [109, 126]


@pytest.mark.parametrize(
    ("slo", "settings", "reason"),
    [
        (None, ":s_pf=9", "accelgen needs a limit on ttft, or on e2e, .* class 'all'"),
        (
            parse_slo("ttft=1s,tpot=1s"),
            ":s_pf=9",
            "limit on tbt, or on e2e, .* --slo tbt",
        ),
        (parse_slo("ttft=1s,tbt=1s"), ":s_pf=100", "s_pf is 100, above .*=64; give t_"),
        (parse_slo("jct=1s"), ":s_pf=9,chunking=0", "row 2 .* uncut, .*batched.*=64"),
    ],
)
def test_what_it_cannot_serve_is_refused(slo, settings, reason):
    trace = Trace([4, 56], [2, 2], [0.0, 0.0])

    with pytest.raises(InputError, match=reason):
        simulate(
            trace,
            fleet_of(TABLES, engine(), 1, scheduler=f"accelgen{settings}"),
            slo=slo,
        )
