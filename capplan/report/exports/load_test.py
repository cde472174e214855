"""The load test of a plan's replica: before the GPUs are rented, on one node."""

import csv
import io
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from capplan.calibration.load_test import LoadTest
from capplan.calibration.planned_test import PlannedLoad
from capplan.report.exports.export import Export
from capplan.report.exports.planned import Planned
from capplan.report.fields import FORMS
from capplan.report.first_screen import hour_of
from capplan.report.received.tested_plan import TestedPlan, load_test_of
from capplan.units import format_usd
from capplan.workload.trace import Trace

_WORDS = re.findall(
    r"\w+",
    "a an as at be by do go he if in is it me my no of on or so to up us we and are "
    "but can for had has her him his how its may new not now old one our out say see "
    "she the two use was way who you",
)
"""Each is one token, with the space before it, for the tokenizers of LLMs."""
quantity = FORMS["quantity"]
_URL = "http://localhost:8000"
_COLUMNS = ("rate_per_s", "requests", "times")
_MEANS = ("tpot_ms", "ttft_ms", "output_tokens_per_s")


def load_test_export(planned: Planned, given: Mapping[str, str] | None) -> Export:
    """Return the files of the load test: its commands, requests and what to expect.

    ``given`` are files that the user names in place of the plan's.
    """
    plan = load_test_of(Path(planned.path), given)
    loads, replica = plan.test.loads, plan.test.replica
    low, high = replica.slowdown_range or (1.0, 1.0)
    bands = [plan.test.expected(factor) for factor in (1.0, low, high)]
    checkpoint = planned.checkpoint
    node, usd = hour_of(replica)
    price = f", {format_usd(usd)} an hour" if usd is not None else ", of no known price"
    then = (
        f"capplan fit --from results --onto {plan.which} --plan "
        f"{shlex.quote(planned.path)} -o mine.yaml"
    )
    script = "\n".join(
        [
            "#!/bin/sh",
            'case "$1" in',
            f"serve) exec {shlex.join(planned.pool.launch.words)} ;;",
            "vllm)",
            "mkdir -p results",
            *(_vllm(checkpoint, load) for load in loads),
            ";;",
            "guidellm)",
            "mkdir -p results",
            *(_guidellm(load) for load in loads),
            ";;",
            '*) echo "usage: $0 serve, then beside it $0 vllm or $0 guidellm" >&2;'
            " exit 2 ;;",
            "esac",
            "",
        ]
    )
    requests = {
        _requests(load): "".join(_lines(load.requests, seed))
        for seed, load in enumerate(loads)
    }
    return Export(
        {"loadtest.sh": script, "expected.csv": _csv(loads, bands), **requests},
        needs=(f"one {node}{price}", "then: " + then),
        told=(f"rent   {node}{price}", *_told(loads, bands), f"then   {then}"),
        lacks=_lacks(plan),
    )


def _lacks(plan: TestedPlan) -> tuple[str, ...]:
    """Return what of the plan one replica does not show."""
    count = plan.document["best"]["replica_count"]
    return (f"the router before {count} replicas",) * (count > 1)


def _requests(load: PlannedLoad) -> str:
    return f"requests_{100 * load.share:.0f}.jsonl"


def _vllm(checkpoint: str, load: PlannedLoad) -> str:
    """Return the command of vLLM that sends a load and keeps its means."""
    rate = f"{load.point.rate_per_s:g}"
    words = ["vllm", "bench", "serve", "--model", checkpoint, "--base-url", _URL]
    words += ["--dataset-name", "custom", "--dataset-path", _requests(load)]
    words += ["--skip-chat-template", "--custom-output-len", "-1", "--ignore-eos"]
    words += ["--num-prompts", str(load.point.requests), "--request-rate", rate]
    words += ["--save-result", "--result-dir", "results"]
    return shlex.join(
        [*words, "--result-filename", f"vllm_{100 * load.share:.0f}.json"]
    )


def _guidellm(load: PlannedLoad) -> str:
    """Return the command of GuideLLM that does."""
    path = f"results/guidellm_{100 * load.share:.0f}.json"
    backend = f"kind=openai_http,target={_URL},request_format=/v1/completions"
    words = ["guidellm", "run", "--backend", backend]
    words += ["--data", f"kind=json_file,path={_requests(load)}"]
    words += ["--profile", f"kind=poisson,rate={load.point.rate_per_s:g}"]
    words += ["--constraint", f"kind=max_requests,count={load.point.requests}"]
    return shlex.join([*words, "--output", f"kind=json,path={path}"])


def _lines(requests: Trace, seed: int) -> Iterator[str]:
    """Yield the requests as JSON lines: made-up words, one a token.

    Those of a prefix group begin with the same words, all others differ.
    """
    draw, words = np.random.default_rng(seed), np.array(_WORDS)
    shared: dict[int, np.ndarray] = {}
    for prompt, output, group, prefix in zip(
        requests.prompt_tokens,
        requests.output_tokens,
        requests.prefix_group,
        requests.prefix_tokens,
        strict=True,
    ):
        chosen = draw.integers(len(words), size=prompt)
        if group >= 0:
            own = np.random.default_rng([1, int(group)])
            first = shared.setdefault(int(group), own.integers(len(words), size=10**6))
            chosen[:prefix] = first[:prefix]
        row = {"prompt": " ".join(words[chosen]), "output_tokens": int(output)}
        yield json.dumps({**row, "output_tokens_count": int(output)}) + "\n"


def _means(load: LoadTest) -> tuple[float, float, float]:
    return 1e3 * load.tpot_s, 1e3 * load.ttft_s, load.output_tokens_per_s


def _csv(loads: Sequence[PlannedLoad], bands: Sequence[Sequence[LoadTest]]) -> str:
    """Return what each load shows, as planned and with faster and slower engines."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow((*_COLUMNS, *_MEANS))
    for name, band in zip(("planned", "fast", "slow"), bands, strict=True):
        for load, of in zip(loads, band, strict=True):
            means = (f"{value:.6g}" for value in _means(of))
            rows.writerow((load.point.rate_per_s, load.point.requests, name, *means))
    return text.getvalue()


def _told(
    loads: Sequence[PlannedLoad], bands: Sequence[Sequence[LoadTest]]
) -> Iterator[str]:
    """Yield what each load is expected to show, with that of 80 % of engines."""
    names = ("TPOT {} ms", "TTFT {} ms", "{} tokens/s")
    for load, *means in zip(loads, *(map(_means, band) for band in bands), strict=True):
        texts = []
        for name, value, low, high in zip(names, *means, strict=True):
            ends = sorted((low, high))
            band = "" if low == high else f" ({' to '.join(map(quantity, ends))})"
            texts.append(name.format(f"{quantity(value)}{band}"))
        at = f"{load.point.rate_per_s:g} requests/s"
        share = f"{100 * load.share:.0f} % of a replica's load"
        yield f"expect {at}, {share}: {', '.join(texts)}"
