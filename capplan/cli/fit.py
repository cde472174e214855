"""``capplan fit``: a latency profile from measurements that exist already."""

from typing import Any

from capplan.calibration.settings import FitSettings
from capplan.cli.answer import show
from capplan.cli.options import with_settings
from capplan.cli.scenario import settings_from

FAILED = 1
"""Exit code where a load test does not bear its plan out."""


@with_settings(FitSettings)
def fit_command(**flags: Any) -> int:
    """Fit a latency profile to measurements and print its errors.

    Formats of iterations: vllm-log, splitwise and points (CSV of phase, batch,
    new_tokens, context, seconds); and aiconfigurator:SYSTEM/MODEL for sums of kernels
    that aiconfigurator-core measured, in parts with ?dp=8&ep=8. Formats of served
    runs, whose iteration time is fitted by simulating the engine: vllm-serve,
    vllm-latency, guidellm, aiperf and llmservingsim. With --onto, load tests that state
    means per number of users or rate: a CSV of isl, osl, concurrency or rate_per_s, and
    any of tpot_ms, ttft_ms, output_tokens_per_s; or what vllm bench serve and its
    sweeps, SGLang, GuideLLM, AIPerf, GenAI-Perf, inference-perf, llmperf, trtllm-bench
    or InferenceX wrote, a file or a tree of folders; or metrics:FOLDER of a fleet that
    runs, as `capplan backtest` reads them. With --plan, those of the test that `capplan
    export --to loadtest` writes. Exit code 0: written, and passed; 1: failed, so that
    the plan is to be another; 2: wrong input.
    """
    settings = settings_from(FitSettings, None, flags)
    from capplan.report.writers.fit import fit

    page, written = fit(settings)
    show(page, written)
    return FAILED if page.is_failure else 0
