"""The load test of a plan's replica: before the GPUs are rented, on one node."""

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
from capplan.report.received.tested_plan import load_test_of
from capplan.report.uncertain import fit_command
from capplan.units import format_usd
from capplan.workload.trace import Trace

_WORDS = re.findall(
    r"\w+",
    "a an as at be by do go he if in is it me my no of on or so to up us we and are "
    "but can for had has her him his how its may new not now old one our out say see "
    "she the two use was way who you",
)
"""Each is one token, with the space before it, for the tokenizers of LLMs."""
_quantity = FORMS["quantity"]
_SCRIPT = """\
#!/bin/sh
{told}
case "$1" in
serve) exec {serve} ;;
vllm)
mkdir -p results
{vllm}
;;
guidellm)
mkdir -p results
{guidellm}
;;
*) echo "usage: $0 serve, then beside it $0 vllm or $0 guidellm" >&2; exit 2 ;;
esac
"""
_VLLM = (
    "vllm bench serve --model {checkpoint} --base-url http://localhost:8000 "
    "--dataset-name custom --dataset-path requests_{name}.jsonl --skip-chat-template "
    "--custom-output-len -1 --ignore-eos --num-prompts {count} --request-rate {rate:g} "
    "--save-result --result-dir results --result-filename vllm_{name}.json"
)
_GUIDELLM = (
    "guidellm run --backend kind=openai_http,target=http://localhost:8000,"
    "request_format=/v1/completions --data kind=json_file,path=requests_{name}.jsonl "
    "--profile kind=poisson,rate={rate:g} --constraint kind=max_requests,count={count} "
    "--output kind=json,path=results/guidellm_{name}.json"
)


def load_test_export(planned: Planned, given: Mapping[str, str] | None) -> Export:
    """Return the files of a load test: commands with what to expect, and requests.

    ``given`` are files that the user names in place of the plan's.
    """
    plan = load_test_of(Path(planned.path), given)
    loads, replica = plan.test.loads, plan.test.replica
    ends = replica.slowdown_range or (1.0, 1.0)
    bands = [plan.test.expected(factor) for factor in (1.0, *ends)]
    node, usd = hour_of(replica)
    price = f", {format_usd(usd)} an hour" if usd is not None else ", of no known price"
    then = fit_command(plan.which, planned.path, plan.given)
    told = (f"rent   {node}{price}", *_told(loads, bands), f"then   {then}")
    script = _SCRIPT.format(
        told="\n".join(f"# {line}" for line in told),
        serve=shlex.join(planned.pool.launch.words),
        vllm=commands(_VLLM, loads, planned.checkpoint),
        guidellm=commands(_GUIDELLM, loads),
    )
    requests = {
        f"requests_{_name(load)}.jsonl": "".join(_lines(load.requests, seed))
        for seed, load in enumerate(loads)
    }
    count = plan.document["best"]["replica_count"]
    lacks = (f"the router before {count} replicas",) * (count > 1)
    files, kind = {"loadtest.sh": script, **requests}, "load test of one replica"
    return Export(files, told=told, lacks=lacks, kind=kind)


def _name(load: PlannedLoad) -> str:
    return f"{100 * load.share:.0f}"


def commands(form: str, loads: Sequence[PlannedLoad], checkpoint: str = "") -> str:
    """Return the commands that send loads and keep their means, a line each."""
    return "\n".join(
        form.format(
            checkpoint=shlex.quote(checkpoint),
            name=_name(load),
            count=load.point.requests,
            rate=load.point.rate_per_s,
        )
        for load in loads
    )


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
            if group not in shared:
                own = np.random.default_rng([1, int(group)])
                shared[group] = own.integers(len(words), size=10**6)
            chosen[:prefix] = shared[group][:prefix]
        row = {"prompt": " ".join(words[chosen]), "output_tokens": int(output)}
        yield json.dumps({**row, "output_tokens_count": int(output)}) + "\n"


def _told(
    loads: Sequence[PlannedLoad], bands: Sequence[Sequence[LoadTest]]
) -> Iterator[str]:
    """Yield what each load is expected to show, with that of 80 % of engines."""
    names = ("TPOT {} ms", "TTFT {} ms", "{} tokens/s")
    for load, *means in zip(loads, *bands, strict=True):
        texts = []
        each = [
            (1e3 * of.tpot_s, 1e3 * of.ttft_s, of.output_tokens_per_s) for of in means
        ]
        for name, value, low, high in zip(names, *each, strict=True):
            ends = sorted((low, high))
            band = "" if low == high else f" ({' to '.join(map(_quantity, ends))})"
            texts.append(name.format(f"{_quantity(value)}{band}"))
        at = f"{load.point.rate_per_s:g} requests/s"
        share = f"{100 * load.share:.0f} % of a replica's load"
        yield f"expect {at}, {share}: {', '.join(texts)}"
