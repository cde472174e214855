"""DistServe's stated answer: how its simulator lays out OPT-13B on four A100.

The repository (simdistserve) states for one node of four GPUs, ShareGPT, TTFT 0.2 s and
TPOT 0.1 s kept by 90 % of 300 requests each: 1.56 requests/s for each GPU, prompts on
tensor parallelism 2, decoding on 1, in steps of 0.25. Iteration times are its own
(profiler-a100-80g.distserve.json, with 2 ms and 0.1 us a token in each, 1 ms more with
prompts), KV too (66,144 and 163,008 tokens at TP 1 and 2), copies take no time, and
its limit of 50,000 tokens of context in a batch is left out. Its file of
lengths is not at hand: ours are drawn, prompt and output apart, to have the quantiles
of the first 90 requests of its recorded runs (simdistserve/benchmarks/alignment,
opt-13b-sharegpt-workload): prompts 2,048 times Beta(1.2, 1.6), outputs of two
lognormals, medians 18 and 300. The mean prompt is 870 tokens, theirs 856 with a
standard error of 57. Pipeline parallelism is not tried.
"""

from functools import cache, partial

import numpy as np
from papers_claims import SEEDS, Claim, about, markdown, table
from papers_runs import Mixture, highest_rate_per_s, poisson_s

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import Deployment, Pool
from capplan.latency.contract import LatencyTables
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace

COUNT, LONGEST_TOKENS, MAX_BATCH = 300, 2048, 256
BATCH_TOKENS = 16_384  # of prompts together: more than ever wait
OUTPUTS = Mixture((0.52, 0.48), np.log((18, 300)), (1.0, 0.6))
SLO_S = 0.2, 0.1  # TTFT, TPOT
ATTAINMENT = 0.9
KV_TOKENS = {1: 66_144, 2: 163_008}
PREFILL_MS = {  # fixed, of a token, of its length squared
    1: (18.1025, 0.101912, 7.1223e-6),
    2: (14.7430, 0.0685772, 2.44957e-6),
}
DECODE_MS = {  # fixed, of a token of context, of a request: below 95 requests, above
    1: ((19.9347, 6.26936e-4, 0.038507), (7.16619, 5.798e-4, 0.158311)),
    2: ((13.2948, 3.41092e-4, 0.0629639), (10.6387, 3.11834e-4, 0.0856291)),
}
STEP_MS, STEP_TOKEN_MS, PROMPTS_MS = 2.0, 1e-4, 1.0  # of the engine around it
LAYOUTS = ((1, 1), (1, 2), (2, 1), (2, 2))  # TP of prompts, of decoding


@cache
def tables(tp: int) -> LatencyTables:
    """Return the iteration times of a TP degree; prompts run by themselves."""
    fixed_ms, token_ms, square_ms = PREFILL_MS[tp]
    batch = np.arange(MAX_BATCH + 1.0)
    tokens = np.arange(BATCH_TOKENS + MAX_BATCH + 1.0)
    few, many = (np.array(row) for row in DECODE_MS[tp])
    base_ms, context_ms, request_ms = np.where(batch[:, None] < 95, few, many).T
    decode_ms = STEP_MS + base_ms + (request_ms + STEP_TOKEN_MS) * batch
    prompts_ms = STEP_MS + PROMPTS_MS + fixed_ms + (token_ms + STEP_TOKEN_MS) * tokens
    return LatencyTables(
        decode_s=decode_ms / 1e3,
        decode_context_s=np.ascontiguousarray(context_ms / 1e3),
        fused_s=prompts_ms / 1e3,
        fused_decode_s=np.zeros(MAX_BATCH + 1),
        fused_context_s=np.zeros(MAX_BATCH + 1),
        attention_s=2 * square_ms / 1e3,  # of half the square of the length
        request_s=0.0,
    )


def deployment(prefill_tp: int, decode_tp: int) -> Deployment:
    """Return one replica for prompts and one for decoding."""
    pools = [
        Pool(
            Configuration(
                EngineSettings(
                    max_num_batched_tokens=BATCH_TOKENS,
                    max_num_seqs=MAX_BATCH,
                    async_scheduling=False,
                    kv_blocks=KV_TOKENS[tp] // 16,
                ),
                tables(tp),
            ),
            1,
        )
        for tp in (prefill_tp, decode_tp)
    ]
    at_once = "distserve:hop=0s,handshake=0s,block=1e-9s"
    return Deployment(tuple(pools), hand_off=at_once)


def attains(layout: tuple[int, int], seed: int, per_s: float) -> bool:
    """Return whether a layout keeps both limits at a rate."""
    rng = np.random.default_rng(seed)
    drawn = np.clip(LONGEST_TOKENS * rng.beta(1.2, 1.6, COUNT), 5, 2000)
    prompts = drawn.astype(np.int64)
    outputs = np.minimum(OUTPUTS.draw(rng, COUNT, 2, 1000), LONGEST_TOKENS - prompts)
    trace = Trace(prompts, outputs, poisson_s(rng, COUNT, per_s))
    times = simulate(trace, deployment(*layout)).table
    ttft_s, tpot_s = SLO_S
    kept = (times.ttft_s <= ttft_s, ~(times.tpot_s > tpot_s))
    return all(each.mean() >= ATTAINMENT for each in kept)


@cache
def rate_per_gpu_per_s(layout: tuple[int, int]) -> np.ndarray:
    """Return the highest rate of a layout for each GPU, of each seed."""
    rates = [
        highest_rate_per_s(partial(attains, layout, seed), 0.2, 40.0) for seed in SEEDS
    ]
    return np.array(rates) / sum(layout)


def claims() -> list[Claim]:
    """Return the repository's answer beside ours."""
    rates = np.array([rate_per_gpu_per_s(layout) for layout in LAYOUTS])
    best = np.array(LAYOUTS)[rates.argmax(axis=0)]
    sampled = "300 requests are few: it hangs on the longest prompts of a sample"
    return [
        Claim("TP of prompts in the best layout", "2", best[:, 0], (2, 2)),
        Claim("TP of decoding in the best layout", "1", best[:, 1], (1, 1)),
        Claim(
            "requests/s for each GPU in it",
            "1.56",
            rates.max(axis=0),
            about(1.56),
            "",
            sampled,
        ),
    ]


def section() -> str:
    """Return the section of docs/how/papers.md."""
    assert __doc__ is not None
    what = __doc__.split("\n\n", 1)[1].strip()
    rows = [
        (*map(str, layout), f"{rate_per_gpu_per_s(layout).mean():.2f}")
        for layout in LAYOUTS
    ]
    head = ("TP of prompts", "TP of decoding", "requests/s for each GPU")
    return f"## DistServe\n\n{what}\n\n{table(claims())}\n\n{markdown(head, rows)}\n"


if __name__ == "__main__":
    print(section())
