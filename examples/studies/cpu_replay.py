"""Profile a vLLM engine, serve Poisson arrivals on it, and simulate the same.

The engine is stepped one iteration at a time under a virtual clock: each step
advances it by the time the step took, and requests are added when it passes
their arrival. So a machine without a GPU shows how well a profile predicts a
served run: scheduler, KV cache and model are vLLM's own.

The speed of a shared machine changes over minutes. So scenes of the profile and
short traces take turns, in rounds. The first round that serves a trace records
before which step each request is added; later rounds add it before the same
step, so that every step does the same work in each round. A step's time is the
median of its rounds, as for a point of the profile, and arrivals are moved to the
clock of these medians before they are simulated. On an idle machine this changes
nothing.

On a CPU, oneDNN builds a matrix product for each new number of tokens, so a
prompt of a new length takes up to half longer. A GPU has no such cost; so the
cache of products is made large enough for all lengths. Where vLLM is installed:

    export OMP_NUM_THREADS=1 KMP_BLOCKTIME=0
    python examples/studies/cpu_replay.py serve run.json
    python examples/studies/cpu_replay.py compare run.json
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import Deployment
from capplan.errors import CapplanWarning
from capplan.latency.fit import fit
from capplan.latency.measurements import points_from_rows
from capplan.latency.terms import tables
from capplan.profiling.backend import (
    EngineFacts,
    EngineRequest,
    facts_from_document,
)
from capplan.profiling.iteration_clock import Iteration
from capplan.profiling.plan import DENSITIES, density, plan_profile
from capplan.profiling.repeats import measured_row
from capplan.profiling.scenes import Point
from capplan.profiling.vllm_backend import VllmBackend
from capplan.workload.trace import Trace

# Read when torch is imported, which the backend does later on.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "1000000")

LLMS = {
    "4 layers of 256": {
        "hidden_size": 256,
        "intermediate_size": 768,
        "heads": 8,
        "kv": 4,
    },
    "4 layers of 512": {
        "hidden_size": 512,
        "intermediate_size": 1408,
        "heads": 8,
        "kv": 8,
    },
}
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
"""Processor time excludes other programs; for engines of one thread."""


def config(shape: dict[str, int]) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape["hidden_size"],
        "intermediate_size": shape["intermediate_size"],
        "num_hidden_layers": 4,
        "num_attention_heads": shape["heads"],
        "num_key_value_heads": shape["kv"],
        "vocab_size": 4096,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "torch_dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
    }


def poisson_trace(rate_per_s: float, count: int, seed: int) -> Trace:
    rng = np.random.default_rng(seed)

    def lengths(mean: float, sigma: float, most: int) -> np.ndarray:
        drawn = rng.lognormal(np.log(mean) - sigma**2 / 2, sigma, count)
        return np.clip(np.rint(drawn), 2, most).astype(np.int64)

    return Trace(
        prompt_tokens=lengths(250, 0.9, 2000),
        output_tokens=lengths(60, 0.7, 400),
        arrival_s=np.cumsum(rng.exponential(1 / rate_per_s, count)),
        source=f"Poisson, seed {seed}",
    )


def serve(
    backend: VllmBackend, trace: Trace, added_before: list[int] | None = None
) -> dict[str, Any]:
    """Serve a trace; return its steps, and those of each request's tokens.

    With ``added_before``, the step before which each request is added, arrival
    times are ignored.
    """
    backend.clock.reset()
    count = len(trace)
    rows: dict[str, int] = {}
    added, first, last = [-1] * count, [-1] * count, [-1] * count
    now_s, arrived, idle_s = 0.0, 0, {}
    while arrived < count or rows:
        done = len(backend.clock.iterations)
        if not rows and added_before is None:
            wait_s = float(trace.arrival_s[arrived]) - now_s
            if wait_s > 0:
                idle_s[done] = wait_s
                now_s += wait_s
        while arrived < count and (
            added_before[arrived] == done
            if added_before
            else trace.arrival_s[arrived] <= now_s
        ):
            name = backend.add(
                int(trace.prompt_tokens[arrived]), int(trace.output_tokens[arrived])
            )
            rows[name], added[arrived] = arrived, done
            arrived += 1
        outputs = backend.engine.step()
        now_s += sum(each.seconds for each in backend.clock.iterations[done:])
        for output in outputs:
            row = rows[output.request_id]
            if first[row] < 0 and output.outputs[0].token_ids:
                first[row] = done
            if output.finished:
                last[row] = done
                del rows[output.request_id]
    iterations = backend.clock.iterations
    return {
        "seconds": [each.seconds for each in iterations],
        "work": [[each.decode_contexts, each.chunks] for each in iterations],
        "added_before": added,
        "first": first,
        "last": last,
        "idle_s": [[step, wait_s] for step, wait_s in idle_s.items()],
    }


def quiet_times(
    trace: Trace, served: dict[str, Any]
) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Return arrivals and times under the clock of the steps' medians, and those.

    An arrival keeps its place, as a share, within the step in which it fell, and
    its distance from the next where the engine was idle.
    """
    noisy_s = np.array(served["seconds"][0])
    quiet_s = np.median(np.array(served["seconds"]), axis=0)
    waits = np.zeros(len(quiet_s))
    for step, wait_s in served["idle_s"]:
        waits[step] = wait_s
    noisy_end = np.cumsum(noisy_s + waits)
    quiet_end = np.cumsum(quiet_s + waits)
    # Breaks of a piecewise linear map: where each wait ends and each step ends.
    noisy_at = np.concatenate(
        [[0.0], np.stack([noisy_end - noisy_s, noisy_end], 1).ravel()]
    )
    quiet_at = np.concatenate(
        [[0.0], np.stack([quiet_end - quiet_s, quiet_end], 1).ravel()]
    )
    arrival_s = np.interp(trace.arrival_s, noisy_at, quiet_at)
    first_s, last_s = quiet_end[served["first"]], quiet_end[served["last"]]
    times = {
        "ttft_s": first_s - arrival_s,
        "tpot_s": (last_s - first_s) / np.maximum(trace.output_tokens - 1, 1),
        "e2e_s": last_s - arrival_s,
    }
    return arrival_s, times, quiet_s


def figures(times: dict[str, np.ndarray]) -> dict[str, float]:
    return {
        "mean TPOT": float(np.mean(times["tpot_s"])),
        "mean e2e": float(np.mean(times["e2e_s"])),
        "mean TTFT": float(np.mean(times["ttft_s"])),
        "p99 TTFT": float(np.quantile(times["ttft_s"], 0.99)),
    }


def choose_rate(fitted: Any, facts: EngineFacts, batch: int, trace: Trace) -> float:
    """Return the rate at which about ``batch`` requests decode together. [requests/s]

    While b requests each decode for o iterations, b more arrive and are prefilled.
    """
    latency = engine_tables(fitted, facts)
    prompt = int(trace.prompt_tokens.mean())
    decode_s = latency.decode_s[batch] + latency.decode_context_s[batch] * batch * (
        prompt + trace.output_tokens.mean() / 2
    )
    prefill_s = latency.fused_s[prompt + batch] - latency.fused_s[batch]
    return float(batch / (trace.output_tokens.mean() * decode_s + batch * prefill_s))


def engine(facts: EngineFacts) -> EngineSettings:
    return EngineSettings(
        max_num_batched_tokens=facts.max_num_batched_tokens,
        max_num_seqs=facts.max_num_seqs,
        block_size=facts.block_size,
        kv_blocks=facts.kv_blocks,
        async_scheduling=facts.async_scheduling,
        max_model_len=facts.max_model_len,
    )


def engine_tables(fitted: Any, facts: EngineFacts) -> Any:
    return tables(
        fitted.decode, fitted.fused, facts.max_num_seqs, facts.max_num_batched_tokens
    )


def predicted_s(latency: Any, iteration: Iteration) -> float:
    batch, context = len(iteration.decode_contexts), sum(iteration.decode_contexts)
    if not iteration.chunks:
        return latency.decode_s[batch] + latency.decode_context_s[batch] * context
    new = sum(new for new, _ in iteration.chunks)
    attention = sum(new * (cached + new / 2) for new, cached in iteration.chunks)
    return (
        latency.fused_s[new + batch]
        + latency.fused_decode_s[batch]
        + latency.fused_context_s[batch] * context
        + latency.attention_s * attention
    )


def fit_rounds(rounds_s: dict[Point, list[list[float]]]) -> Any:
    rows = [measured_row(point, values) for point, values in rounds_s.items()]
    return fit(points_from_rows([(*row.point, row.seconds) for row in rows]))


def record(given: argparse.Namespace) -> dict[str, Any]:
    """Profile and serve in turn; return everything measured."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config(LLMS[given.llm])))
        options = {
            "load_format": "dummy",
            "dtype": "bfloat16",
            "enforce_eager": True,
            "kv_cache_memory_bytes": 2**29,
        }
        backend = VllmBackend(
            EngineRequest(folder, given.tp, options), CLOCKS[given.clock]
        )
        backend.device()
        facts = backend.load()
        try:
            measured = measure(backend, facts, given)
        finally:
            backend.close()
    return {
        "llm": given.llm,
        "tp": given.tp,
        "clock": given.clock,
        "facts": facts.as_document(),
        **measured,
    }


def measure(
    backend: VllmBackend, facts: EngineFacts, given: argparse.Namespace
) -> dict[str, Any]:
    plan = plan_profile(facts, density(given.density))
    owners = plan.owners()
    shuffle = random.Random(1)
    rounds_s: dict[Point, list[list[float]]] = {}
    served: list[dict[str, Any]] = []
    rate = 0.0
    for turn in range(given.rounds + 1):
        start = time.perf_counter()
        scenes = shuffle.sample(plan.scenes, len(plan.scenes))
        every = max(1, len(scenes) // given.traces)
        for number, scene in enumerate(scenes):
            by_point: dict[Point, list[float]] = {}
            for point, seconds in backend.run(scene):
                if owners[point] == scene:
                    by_point.setdefault(point, []).append(seconds)
            for point, values in by_point.items():
                rounds_s.setdefault(point, []).append(values)
            seed, left = divmod(number, every)
            if not turn or left or seed >= given.traces:
                continue
            trace = poisson_trace(rate, given.requests, seed)
            if turn == 1:
                run = serve(backend, trace)
                served.append(run | {"seconds": [run["seconds"]]})
                continue
            before = served[seed]
            run = serve(backend, trace, before["added_before"])
            assert run["work"] == before["work"], "the engine scheduled otherwise"
            before["seconds"].append(run["seconds"])
        if not turn:
            typical = poisson_trace(1, 1000, 99)
            rate = choose_rate(fit_rounds(rounds_s), facts, given.batch, typical)
        took_s = time.perf_counter() - start
        print(f"round {turn} took {took_s:.0f} s", file=sys.stderr)
    return {
        "rate_per_s": rate,
        "requests": given.requests,
        "points": [[*point, values] for point, values in rounds_s.items()],
        "served": served,
    }


def pooled(all_times: list[dict[str, np.ndarray]]) -> dict[str, float]:
    return figures(
        {
            key: np.concatenate([times[key] for times in all_times])
            for key in all_times[0]
        }
    )


def compare(recording: dict[str, Any]) -> dict[str, Any]:
    """Fit the profile, simulate the served arrivals and return the errors."""
    from capplan.simulator.simulate import simulate

    facts = facts_from_document(recording["facts"])
    fitted = fit_rounds({Point(*row[:4]): row[4] for row in recording["points"]})
    latency = engine_tables(fitted, facts)
    real, simulated, real_s, predicted = [], [], [], []
    batches: list[int] = []
    for seed, served in enumerate(recording["served"]):
        trace = poisson_trace(recording["rate_per_s"], recording["requests"], seed)
        arrival_s, times, quiet_s = quiet_times(trace, served)
        done = simulate(
            replace(trace, arrival_s=arrival_s),
            Deployment.of(Configuration(engine(facts), latency), 1),
        )
        real.append(times)
        simulated.append(
            {
                "ttft_s": done.times.ttft_s,
                "tpot_s": np.nan_to_num(done.times.tpot_s),
                "e2e_s": done.times.e2e_s,
            }
        )
        steps = [Iteration(0.0, *work) for work in served["work"]]
        real_s.append(quiet_s)
        predicted.append([predicted_s(latency, step) for step in steps])
        batches += [len(step.decode_contexts) for step in steps]
    step_s, predicted_step_s = np.concatenate(real_s), np.concatenate(predicted)
    was, said = pooled(real), pooled(simulated)
    rounds_s = [np.array(run["seconds"]) for run in recording["served"]]
    return {
        "llm": recording["llm"],
        "tp": recording["tp"],
        "clock": recording["clock"],
        "rate_per_s": round(recording["rate_per_s"], 2),
        "points": len(recording["points"]),
        "forms": [fitted.decode_form, fitted.fused_form],
        "held_out_mean_abs_error": {
            phase: round(error.held_out_mean_abs, 4)
            for phase, error in fitted.errors.items()
        },
        "served_requests": len(real) * recording["requests"],
        "served_steps": len(step_s),
        "mean_batch": round(float(np.mean(batches)), 2),
        "time_of_each_round_over_the_medians": [
            round(float(sum(run[turn].sum() for run in rounds_s) / step_s.sum()), 3)
            for turn in range(len(rounds_s[0]))
        ],
        "served_ms": {key: round(1e3 * was[key], 2) for key in was},
        "simulated_ms": {key: round(1e3 * said[key], 2) for key in said},
        "error": {key: round(said[key] / was[key] - 1, 4) for key in was},
        "step_mean_abs_error": round(
            float(np.mean(np.abs(predicted_step_s / step_s - 1))), 4
        ),
        "error_of_summed_steps": round(
            float(predicted_step_s.sum() / step_s.sum() - 1), 4
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    serving = commands.add_parser("serve", help="where vLLM is installed")
    serving.add_argument("recording", type=Path)
    serving.add_argument("--llm", choices=LLMS, default=next(iter(LLMS)))
    serving.add_argument("--tp", type=int, default=1)
    serving.add_argument("--rounds", type=int, default=5)
    serving.add_argument("--requests", type=int, default=60)
    serving.add_argument("--traces", type=int, default=8)
    serving.add_argument("--density", choices=DENSITIES, default="default")
    serving.add_argument("--batch", type=int, default=6)
    serving.add_argument("--clock", choices=CLOCKS, default="wall")
    comparing = commands.add_parser("compare", help="anywhere")
    comparing.add_argument("recordings", type=Path, nargs="+")
    given = parser.parse_args()
    warnings.simplefilter("ignore", CapplanWarning)
    if given.command == "serve":
        given.recording.write_text(json.dumps(record(given)))
    else:
        made = [compare(json.loads(path.read_text())) for path in given.recordings]
        print(json.dumps(made, indent=1))


if __name__ == "__main__":
    main()
