"""Quantities of a running engine: their names in vLLM and SGLang, and vLLM's buckets.

References
----------
vLLM 0.32.0, ``v1/metrics/loggers.py`` and ``buckets.py``; SGLang 0.5, ``metrics``.
"""

from collections.abc import Mapping

import numpy as np

NAMES: Mapping[str, str] = {
    "vllm:request_prompt_tokens": "prompt_tokens",
    "vllm:request_generation_tokens": "output_tokens",
    "vllm:request_prefill_kv_computed_tokens": "computed_tokens",
    "vllm:time_to_first_token_seconds": "ttft_s",
    "vllm:inter_token_latency_seconds": "itl_s",
    "vllm:time_per_output_token_seconds": "itl_s",  # before 0.11
    "vllm:request_time_per_output_token_seconds": "tpot_s",
    "vllm:e2e_request_latency_seconds": "e2e_s",
    "vllm:request_queue_time_seconds": "queue_s",
    "vllm:request_prefill_time_seconds": "prefill_s",
    "vllm:request_decode_time_seconds": "decode_s",
    "vllm:request_inference_time_seconds": "inference_s",
    "vllm:iteration_tokens": "iteration_tokens",
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:kv_cache_usage_perc": "kv_use",
    "vllm:gpu_cache_usage_perc": "kv_use",  # before 0.10
    "vllm:prompt_tokens": "prompt",
    "vllm:generation_tokens": "generation",
    "vllm:num_preemptions": "preemptions",
    "vllm:request_success": "ended",
    "sglang:prompt_tokens_histogram": "prompt_tokens",
    "sglang:generation_tokens_histogram": "output_tokens",
    "sglang:uncached_prompt_tokens_histogram": "computed_tokens",
    "sglang:time_to_first_token_seconds": "ttft_s",
    "sglang:inter_token_latency_seconds": "itl_s",
    "sglang:e2e_request_latency_seconds": "e2e_s",
    "sglang:queue_time_seconds": "queue_s",
    "sglang:num_running_reqs": "running",
    "sglang:num_queue_reqs": "waiting",
    "sglang:token_usage": "kv_use",
    "sglang:prompt_tokens": "prompt",
    "sglang:generation_tokens": "generation",
    "sglang:num_requests": "ended",
    "sglang:max_total_num_tokens": "kv_tokens",
    "most:num_requests_running": "most_running",
    "most:num_running_reqs": "most_running",
    **{f"log:{x}": x for x in ("running", "waiting", "kv_use", "kv_tokens")},
}
"""Quantities by name, without ``_total``; histograms without ``_bucket``."""

_BY_LABEL = {
    "vllm:prompt_tokens_by_source": (
        "source",
        {"local_compute": "computed", "local_cache_hit": "hit"},
        "external_hit",
    ),
    "sglang:cached_tokens": ("cache_source", {"device": "hit"}, "external_hit"),
}
"""Names that a label tells apart: label, quantities by its value, and of others."""

_FAILED = ("abort", "error")
CONFIGURATION = "vllm:cache_config_info"

PREFIXES = tuple(dict.fromkeys(name.partition(":")[0] for name in NAMES))
GAUGES = frozenset(("running", "waiting", "kv_use", "kv_tokens", "most_running"))

_SERIES_1_2_5 = [d * 10**k for k in range(7) for d in (1, 2, 5)]
_LATENCY = "0.3 0.5 0.8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920 7680"
_TTFT = "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10 20 40"
_TTFT += " 80 160 640 2560"
_ITL = "0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1 2.5 5 7.5 10 20 40 80"


def vllm_bounds(max_model_len: int) -> dict[str, np.ndarray]:
    """Return the upper bounds of vLLM's buckets by quantity, the last infinite."""
    tokens = [x for x in _SERIES_1_2_5 if x <= max_model_len]
    texts = {"ttft_s": _TTFT, "itl_s": _ITL, "tpot_s": _ITL}
    texts |= dict.fromkeys(
        ("e2e_s", "queue_s", "prefill_s", "decode_s", "inference_s"), _LATENCY
    )
    bounds = {
        name: np.array([*map(float, text.split())]) for name, text in texts.items()
    }
    bounds |= dict.fromkeys(
        ("prompt_tokens", "output_tokens", "computed_tokens"), np.array(tokens, float)
    )
    return {name: np.append(row, np.inf) for name, row in bounds.items()}


def plain(name: str) -> str:
    """Return a name as engines write it, without the end that says what it counts.

    Examples
    --------
    >>> plain("vllm_prompt_tokens_total"), plain("vllm:iteration_tokens_total")
    ('vllm:prompt_tokens', 'vllm:iteration_tokens')
    """
    for prefix in PREFIXES:
        name = name.replace(f"{prefix}_", f"{prefix}:", name.startswith(f"{prefix}_"))
    return name.removesuffix("_total")


def quantity(name: str, labels: Mapping[str, str]) -> str:
    """Return the quantity of a plain name; empty where it is of no use."""
    if name in _BY_LABEL:
        label, known, other = _BY_LABEL[name]
        return known.get(labels.get(label, ""), other)
    if NAMES.get(name) == "ended" and labels.get("finished_reason") in _FAILED:
        return "failed"
    return NAMES.get(name, "")


def vllm_names() -> dict[str, str]:
    """Return vLLM's newest name of each quantity."""
    names: dict[str, str] = {}
    for name, what in NAMES.items():
        if name.startswith("vllm"):
            names.setdefault(what, name)
    return names
