"""Sealed plan.json documents with figures that are easy to reckon with."""

import copy
import json
import shlex

from capplan.bounds.certificate import PLAN_SCHEMA, seal

NIXL = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
FLAGS = {
    "--gpu-memory-utilization": "0.92",
    "--max-model-len": "131072",
    "--block-size": "16",
    "--max-num-batched-tokens": "8192",
    "--max-num-seqs": "256",
    "--no-async-scheduling": None,
    "--enable-prefix-caching": None,
}
COLD_START = {
    "node_s": 240.0,
    "image_s": 20.0,
    "weights_s": 70.0,
    "engine_s": 150.0,
    "assumed": ["node", "image", "weights", "engine"],
}


def words(checkpoint, tp, more=()):
    """Return the words of a launch line."""
    flags = [x for pair in FLAGS.items() for x in pair if x is not None]
    return [
        "vllm",
        "serve",
        checkpoint,
        "--tensor-parallel-size",
        str(tp),
        *flags,
        *more,
    ]


def pool_values(checkpoint, tp, count, role="", more=()):
    return {
        "role": role,
        "gpu": "H100-SXM",
        "tp": tp,
        "replica_count": count,
        "price": {"provider": "Cloud", "node": "HGX", "gpus_per_node": 8},
        "engine": {"max_num_seqs": 256},
        "launch_line": shlex.join(words(checkpoint, tp, more)),
        "launch_notes": [],
        "weight_bytes": 100 * 2**30,
        "cold_start": copy.deepcopy(COLD_START),
    }


LLAMA_70B = "meta-llama/Llama-3.1-70B-Instruct"
LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"
_PLAN = {
    "schema": PLAN_SCHEMA,
    "status": "feasible",
    "infeasible_reason": None,
    "llm": "Llama-3.1-70B",
    "slo_text": "ttft ≤ 1.5 s",
    "attainment_text": "99 %",
    "trace_source": "trace.csv",
    "rate_per_s": 24.0,
    "mean_prompt_tokens": 256.0,
    "mean_output_tokens": 268.0,
    "interrupted": False,
    "settings": {},
    "certificate": {"schema": "capplan.certificate"},
}
_BEST = {
    "pools": [],
    "replica_count_range": [3, 4],
    "slo_attainment": 0.995,
    "e2e_p99_s": 22.2,
    "router": "jsq",
}


def one_pool(**best):
    """3 replicas of TP 4, which sustain 10 requests/s each, 50 in flight."""
    return {
        **copy.deepcopy(_PLAN),
        "best": {**pool_values(LLAMA_70B, 4, 3), **copy.deepcopy(_BEST), **best},
        "replica_load": {"rate_per_s": 10.0, "in_flight": 50.0, "replica_count": 3},
    }


def two_pools():
    """3 replicas of TP 1 for prompts, 2 of TP 2 that decode."""
    more = ("--kv-transfer-config", NIXL)
    pools = [
        pool_values(LLAMA_8B, 1, 3, "prefill", more),
        pool_values(LLAMA_8B, 2, 2, "decode", more),
    ]
    best = {**copy.deepcopy(_BEST), "replica_count_range": None, "pools": pools}
    return {
        **copy.deepcopy(_PLAN),
        "llm": "Llama-3.1-8B",
        "best": {"gpu": "H100-SXM", "tp": None, "replica_count": 5, **best},
        "replica_load": None,
    }


def written(document, folder):
    """Write a document, sealed, as plan.json; return its path."""
    path = folder / "plan.json"
    path.write_text(json.dumps(seal(document)), encoding="utf-8")
    return path
