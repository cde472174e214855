"""Load tests as tools write them: where each states what a point of a sweep needs.

A format is a declaration: the fields that tell its tests, and the paths of quantities
by names that end in their unit. Fields of nested objects are paths. ``docs/inputs.md``
says which file of which tool goes where.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from capplan.errors import InputError
from capplan.input_file import read_text
from capplan.latency.importers.aiperf import SECONDS
from capplan.records import flat
from capplan.workload.readers.wrong_header import listed

Fields = dict[str, Any]


class Format(NamedTuple):
    """The tests of one tool."""

    tool: str
    marks: tuple[str, ...]  # fields of each of its tests, and of no earlier format
    paths: Mapping[str, str]  # of quantities; of several, by |, the first that is there
    fixed: Mapping[str, float] = {}
    prepare: Callable[[Path, Fields], Fields] = lambda path, fields: fields
    at_once: bool = False  # without users and rate, all requests are sent at once
    no_load: str = ""  # what to give in place of a test without users and rate
    again: str = ""  # how the tool is run at other numbers of users


_VLLM = {
    "prompt_tokens": "total_input_tokens",
    "output_tokens": "total_output_tokens",
    "requests": "completed",
    "failed": "failed",
    "concurrency": "max_concurrency",
    "rate_per_s": "request_rate",
    "burstiness": "burstiness",
    "process": "ramp_up_strategy",
    "tpot_ms": "mean_tpot_ms",
    "ttft_ms": "mean_ttft_ms",
    "output_tokens_per_s": "output_throughput",
    "done_per_s": "request_throughput",
    "run": "run_number",
}


_NO_CAP = 10_240
"""GuideLLM's setting ``max_concurrency``, which it writes where no limit is given."""


def _guidellm(path: Path, fields: Fields) -> Fields:
    """Leave out the report's version, which is none of the engine, and no cap."""
    caps = _STRATEGY.format("max_concurrency").split("|")
    no_cap = {name for name in caps if fields.get(name) == _NO_CAP}
    unused = {"metadata.version", "version"} | no_cap
    return {k: v for k, v in fields.items() if k not in unused}


def _guidellm_row(path: Path, fields: Fields) -> Fields:
    """Take ``concurrent@4`` apart, and the JSON in the cells of a run."""
    kind, _, load = str(fields["Benchmark.Strategy"]).partition("@")
    is_rate = kind in ("constant", "poisson")
    load = "" if load == "unlimited" else load
    inner = {"process": kind, "rate" if is_rate else "streams": load or None}
    for name in ("Run Info.Backend", "Run Info.Profile"):
        try:
            cell = json.loads(fields.get(name) or "null")
        except (ValueError, RecursionError):
            continue  # another version writes it as text
        inner |= flat({name: cell}) if isinstance(cell, dict) else {}
    cap = inner.get("Run Info.Profile.max_concurrency") if is_rate else None
    cap = None if cap == _NO_CAP else cap
    own = {k: v for k, v in fields.items() if k != "Run Info.Backend"}
    return own | inner | {"cap": cap}


def _aiperf(path: Path, fields: Fields) -> Fields:
    """Take the one phase that is no warm-up, and times in their units.

    The CSV states no load; the name of its folder does.
    """
    fields, phases = dict(fields), fields.get("input_config.phases")
    load = re.search(r"(concurrency|rate)[-_=]?([\d.]+)", path.parent.name)
    if load and not any(name.startswith("input_config") for name in fields):
        fields[f"{NAMED}.{load[1]}"] = load[2]
    if isinstance(phases, list):
        own = [p for p in phases if p.get("kind", p.get("name")) != "warmup"]
        if len(own) != 1:
            raise InputError(f"{path}: has {len(own)} phases of load; expected one")
        fields |= flat({"phase": own[0]})
    if "input_config.perf_analyzer.stimulus.request_rate" in fields:
        fields["phase.type"] = "constant"
    for name in ("inter_token_latency", "time_to_first_token"):
        unit = fields.get(f"{name}.unit", "ms")
        if unit not in SECONDS:
            raise InputError(
                f"{path}: {name} is in {str(unit)[:20]!r}; expected "
                f"{', '.join(SECONDS)}"
            )
        if unit != "ms" and f"{name}.avg" in fields:
            fields[f"{name}.avg"] = float(fields[f"{name}.avg"]) * SECONDS[unit] * 1e3
    return fields


def _inference_perf(path: Path, fields: Fields) -> Fields:
    """Leave out the rate at which a stage's users start; take the model beside it."""
    config = path.parent / "config.yaml"
    text = read_text(config) if config.is_file() else ""
    if model := re.search(r"^\s*model_name:\s*['\"]?([^\s'\"#]+)", text, re.MULTILINE):
        fields = {"model_name": model[1]} | fields
    users = fields.get("load_summary.concurrency") is not None
    return fields | ({"load_summary.requested_rate": None} if users else {})


def _trtllm(path: Path, fields: Fields) -> Fields:
    """State the engine, which the tool's name says, and the GPU."""
    return fields | {"engine": "trtllm", "gpu": fields.get("machine.name")}


_METRIC = "metrics.{}.successful.mean"
_STRATEGY = "config.strategy.{0}|args.strategy.{0}"  # since 0.4, and before
NAMED = "the name of its folder"
"""Fields that are none of the file."""
_LOADGEN = "phase.{}|input_config.loadgen.{}|input_config.perf_analyzer.stimulus.{}"
_LOADGEN += f"|{NAMED}.{{}}"
_LATENCY = "successes.latency.{}.mean"
_RATE = "successes.throughput.{}_per_sec"
_SUCCESSFUL = "{}.Successful {}.Mean"
_TABLE = (
    "isl osl concurrency rate_per_s burstiness requests tpot_ms ttft_ms "
    "output_tokens_per_s range_ratio"
)

FORMATS = (
    Format(
        "SGLang's bench_serving",
        ("mean_e2e_latency_ms", "total_input_tokens", "completed"),
        _VLLM,
        at_once=True,
        again="--max-concurrency 1, then 32",
    ),
    Format(
        "vllm bench serve",
        ("total_input_tokens", "total_output_tokens", "completed"),
        _VLLM,
        at_once=True,
        again="--max-concurrency 1, then 32",
    ),
    Format(
        "InferenceX",
        ("conc", "isl", "osl"),
        {
            "isl": "isl",
            "osl": "osl",
            "concurrency": "conc",
            "tpot_s": "mean_tpot",
            "ttft_s": "mean_ttft",
            "output_tokens_per_s_per_gpu": "output_tput_per_gpu",
            "gpus": "tp",
        },
        fixed={"range_ratio": 0.8},  # lengths are uniform from 80 % of the longest
    ),
    Format(
        "GuideLLM",
        (_METRIC.format("prompt_token_count"), _METRIC.format("output_token_count")),
        {
            "isl": _METRIC.format("prompt_token_count"),
            "osl": _METRIC.format("output_token_count"),
            "concurrency": _STRATEGY.format("streams")
            + f"|{_STRATEGY.format('max_concurrency')}",
            "rate_per_s": _STRATEGY.format("rate"),
            "process": _STRATEGY.format("type_"),
            "tpot_ms": _METRIC.format("inter_token_latency_ms"),
            "ttft_ms": _METRIC.format("time_to_first_token_ms"),
            "output_tokens_per_s": _METRIC.format("output_tokens_per_second"),
            "done_per_s": _METRIC.format("requests_per_second"),
            "requests": "metrics.request_totals.total",
            "completed": "metrics.request_totals.successful",
            "failed": "metrics.request_totals.errored",
        },
        prepare=_guidellm,
        again="--profile kind=concurrent,streams=1, then 32",
    ),
    Format(
        "GuideLLM's CSV",
        ("Benchmark.Strategy", _SUCCESSFUL.format("Token Metrics", "Output Tokens")),
        {
            "isl": _SUCCESSFUL.format("Token Metrics", "Input Tokens"),
            "osl": _SUCCESSFUL.format("Token Metrics", "Output Tokens"),
            "concurrency": "streams|cap",
            "rate_per_s": "rate",
            "process": "process",
            "tpot_ms": _SUCCESSFUL.format("Inter Token Latency", "ms"),
            "ttft_ms": _SUCCESSFUL.format("Time to First Token", "ms"),
            "output_tokens_per_s": _SUCCESSFUL.format(
                "Token Throughput", "Output Tokens/Sec"
            ),
            "done_per_s": _SUCCESSFUL.format("Server Throughput", "Requests/Sec"),
            "requests": "Request Counts.Total",
            "completed": "Request Counts.Successful",
            "failed": "Request Counts.Errored",
        },
        prepare=_guidellm_row,
        no_load="the benchmarks.json beside it",
    ),
    Format(
        "AIPerf or GenAI-Perf",
        ("input_sequence_length.avg", "output_sequence_length.avg"),
        {
            "isl": "input_sequence_length.avg",
            "osl": "output_sequence_length.avg",
            "concurrency": _LOADGEN.format(*["concurrency"] * 4),
            "rate_per_s": _LOADGEN.format(
                "rate", "request_rate", "request_rate", "rate"
            ),
            "process": "phase.type|input_config.loadgen.arrival_pattern"
            "|input_config.loadgen.request_rate_mode",
            "burstiness": "phase.smoothness|input_config.loadgen.arrival_smoothness",
            "tpot_ms": "inter_token_latency.avg",
            "ttft_ms": "time_to_first_token.avg",
            "output_tokens_per_s": "output_token_throughput.avg",
            "done_per_s": "request_throughput.avg",
            "requests": "request_count.avg",
            "failed": "error_request_count.avg",
            "cancelled": "was_cancelled",
        },
        prepare=_aiperf,
        no_load="the JSON beside it, or a folder named …-concurrency8",
        again="--concurrency 1, then 32",
    ),
    Format(
        "inference-perf",
        ("load_summary.count", "successes.count"),
        {
            "isl": "successes.prompt_tokens.mean|successes.prompt_len.mean",
            "osl": "successes.output_len.mean",
            "concurrency": "load_summary.concurrency",
            "rate_per_s": "load_summary.requested_rate",
            "tpot_s": _LATENCY.format("time_per_output_token"),
            "ttft_s": _LATENCY.format("time_to_first_token"),
            "output_tokens_per_s": _RATE.format("output_tokens"),
            "done_per_s": _RATE.format("requests"),
            "requests": "load_summary.count",
            "completed": "successes.count",
            "failed": "failures.count",
        },
        prepare=_inference_perf,
        no_load="the stage_N_lifecycle_metrics.json beside it",
        again="stages of concurrency_level 1 and 32",
    ),
    Format(
        "llmperf",
        ("num_concurrent_requests", "results_end_to_end_latency_s_mean"),
        {
            "isl": "results_number_input_tokens_mean",
            "osl": "results_number_output_tokens_mean",
            "concurrency": "num_concurrent_requests",
            "ttft_s": "results_ttft_s_mean",
            # its inter_token_latency_s is e2e ÷ tokens, with the TTFT in it
            "e2e_s": "results_end_to_end_latency_s_mean",
            "output_tokens_per_s": "results_mean_output_throughput_token_per_s",
            "requests": "results_num_completed_requests",
            "failed": "results_number_errors",
        },
        prepare=_guidellm,
        again="--num-concurrent-requests 1, then 32",
    ),
    Format(
        "trtllm-bench",
        ("request_info.avg_input_length", "request_info.avg_output_length"),
        {
            "isl": "request_info.avg_input_length",
            "osl": "request_info.avg_output_length",
            "concurrency": "request_info.avg_num_concurrent_requests",
            "tpot_ms": "streaming_metrics.avg_tpot_ms",
            "ttft_ms": "streaming_metrics.avg_ttft_ms",
            "output_tokens_per_s": "performance.system_output_throughput_tok_s",
            "requests": "request_info.num_requests",
        },
        prepare=_trtllm,
        again="--concurrency 1, then 32",
    ),
    Format(
        "a table of means",
        ("isl", "osl"),
        {name: name for name in _TABLE.split()},
    ),
)
"""Formats by name of the tool; the first whose marks a test has is its."""

_OTHERS = {
    "metadata.request_start_ns": "AIPerf's single requests; give the "
    "profile_export_aiperf.json beside it, or leave --onto out",
    "benchmark.extra_info.args.backend": "vLLM's copy for PyTorch's dashboard; give "
    "the file of --save-result beside it",
    "queued_ts": "LLMServingSim's single requests; leave --onto out",
    "error_type": "the report of a failed run",
    "error_request_count.avg": "of a run that completed none of its requests",
    "metrics.http_req_duration.avg": "k6's summary, which counts no tokens; run vllm "
    "bench serve, GuideLLM or AIPerf",
    "Average Content Size": "locust's table, which counts no tokens; run vllm bench "
    "serve, GuideLLM or AIPerf",
    "total_num_tokens": "of vllm bench throughput, which has no TPOT; run vllm bench "
    "serve",
    "total_input_sequences": "a test of embeddings, which have no TPOT",
    f"{' Serving Benchmark Result ':=^50}": "what the tool prints; give the JSON that "
    "it writes with --save-result",
}
"""Fields of files that tools write beside load tests, and what those are."""


def format_of(fields: Fields) -> Format | None:
    """Return the format of a test; None of what is none."""
    return next((f for f in FORMATS if all(mark in fields for mark in f.marks)), None)


def known_other(fields: Fields) -> str:
    """Return what a record is that tools write beside load tests; else nothing."""
    return next((f"is {what}" for of, what in _OTHERS.items() if of in fields), "")


def unknown(fields: Fields) -> str:
    """Return what is said of a record that is no load test."""
    if what := known_other(fields):
        return what
    near = max(FORMATS, key=lambda f: sum(mark in fields for mark in f.marks))
    lacks = [mark for mark in near.marks if mark not in fields]
    shown = listed([str(name) for name in fields], 8) or "nothing"
    told = f"is no load test of a known format; it has {shown}"
    if len(lacks) < len(near.marks):
        told += f"; as of {near.tool} it lacks {', '.join(lacks)}"
    tools = ", ".join(f.tool for f in FORMATS[:-1] if "CSV" not in f.tool)
    return (
        f"{told}; expected the file of {tools}, or a CSV of isl, osl, concurrency or "
        "rate_per_s, and tpot_ms"
    )
