"""Received files with one value changed, and what each command makes of them.

``python -m tests.report.forging SECONDS [SEED]`` draws changes for so long.
"""

import copy
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

from capplan.bounds.certificate import seal
from capplan.cli.main import exit_code
from capplan.planning.autoscale.autoscale import autoscale
from capplan.planning.budget.budget import budget
from capplan.planning.plan.plan import plan
from capplan.planning.prove.proof import reproduce
from capplan.planning.what_if.what_if import what_if
from capplan.report.pages.autoscale import DIGEST, digest_of
from tests.report.watching import watched

VALUES: tuple[Any, ...] = (
    *([], ["./evil.py"], ["evil.csv"], [[]], [None], {}, {"evil.py": "evil.csv"}),
    *(None, True, False, 0, -1, 1, 2**62, 2**63, -(2**63), 10**400, 0.5, 1e308),
    *(float("nan"), float("inf"), float("-inf"), "1e999", -1e308, 5e-324),
    *("", "evil.csv", "./evil.py", "../evil.py", "/etc/passwd", "evil", "evil.py:a=1"),
    *("link.csv", "./evil.yaml", "\x00", "\x1b[31m", "\ud800", "x" * 5000, "file:///x"),
    *("-1", "0", "none", "all", "tp0", "dp8", "%s", "{}", "A,B", "a=b", "9:9@9"),
)
"""What a value becomes; the text 1e999 stands for the number."""

COMMANDS = {
    "plan": (
        "verify FILE",
        "verify FILE --no-simulate --json",
        "diff FILE plan.json --format md",
        "diff plan.json FILE",
        "export FILE --to k8s",
        "export FILE --to llm-d --json",
        "fleet FILE drawn.json",
        "budget FILE --months 1 --no-compare-fleets --anchor-months 1",
        "what-if FILE --attainment 0.9",
    ),
    "budget": ("verify FILE", "verify FILE --no-simulate", "budget FILE --months 1"),
    "autoscale": ("verify FILE", "verify FILE --no-simulate", "what-if FILE --rate 1"),
}
"""Commands that read each kind of file."""

_COST = "--latency-ms 9,0.04,0,0.08,0.00005 --kv-blocks 1500"
_ASKED = f"--llm Llama-3.1-8B --gpu H100-SXM --tp 1 --slo ttft=400ms,tpot=20ms {_COST}"
_DRAWN = "--workload synthetic:prompt=90,output=30,n=60 --rate 20 --no-extend"
_MADE = {
    "plan.json": f"plan --trace own.csv {_ASKED}",
    "drawn.json": f"plan {_DRAWN} {_ASKED} --price H100-SXM=2.79",
    "budget.json": f"budget {_DRAWN} {_ASKED} --months 2 --commit reserved:12=40% "
    "--contract 3@9:2 --anchor-months 1 --scenarios high:scale=1.5",
    "autoscale.json": f"autoscale --trace own.csv {_ASKED} --cold-start 1s "
    "--policies hpa:target=8 --outage 1@3s:2s --no-break-even",
}


def make(folder: Path) -> dict[str, dict[str, Any]]:
    """Write the files that are changed, and bait beside and above them."""
    rows = [f"{k / 40:.3f},{50 + k % 97},{20 + k % 31}" for k in range(200)]
    head = "arrival_s,prompt_tokens,output_tokens"
    (folder / "own.csv").write_text("\n".join([head, *rows]) + "\n")
    for place in (folder, folder.parent):
        for name in ("evil.csv", "evil.yaml", "evil"):
            (place / name).write_text(f"{head}\n0,5,5\n")
        (place / "evil.py").write_text(f"open({str(place / 'executed')!r}, 'w')\n")
    os.symlink(folder / "evil.csv", folder / "link.csv")
    (folder / "['.").mkdir()  # the texts of lists are paths too
    (folder / "['./evil.py']").write_text(f"open({str(folder / 'executed')!r}, 'w')")
    (folder / "['evil.csv']").write_text(f"{head}\n0,5,5\n")
    for name, command in _MADE.items():
        out = folder / name.removesuffix(".json")
        code, printed = answer(f"{command} --out {out}")
        assert code == 0, printed
        written = next(out / each for each in os.listdir(out) if each in (*_MADE,))
        (folder / name).write_bytes(written.read_bytes())
    documents = {}
    for kind in COMMANDS:
        documents[kind] = json.loads((folder / f"{kind}.json").read_text())
    return documents


def places(value: Any, where: tuple = ()) -> Iterator[tuple]:
    """Yield the place of every value, inner ones too, but of long lists the first."""
    if where:
        yield where
    inner = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        inner = enumerate(value[:2])
    for key, each in inner:
        yield from places(each, (*where, key))


def forged(document: dict[str, Any], where: tuple, value: Any, sealed: bool) -> str:
    """Return the text of a document with another value, sealed again if asked."""
    document = copy.deepcopy(document)
    at = document
    for key in where[:-1]:
        at = at[key]
    at[where[-1]] = value
    if sealed:
        with suppress(TypeError, ValueError, AttributeError, KeyError, RecursionError):
            digest = document.get("certificate") and seal(document)
            document = digest or document
            if DIGEST in document:
                document[DIGEST] = digest_of(document)
    return json.dumps(document).replace('"1e999"', "1e999")


def answer(command: str) -> tuple[int, str]:
    """Return the exit code of a command in this process, and what it printed."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        code = exit_code(command.split())
    return code, out.getvalue() + err.getvalue()


class Known:
    """What was computed of the same settings: most changes are of other values."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __call__(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        """Return a computation that is not made twice of the same settings."""

        def made(asked: Any, *others: Any, **options: Any) -> Any:
            block = asked.get("certificate") if isinstance(asked, dict) else None
            text = (
                json.dumps([asked["settings"], block, asked.get("drafts_worth")])
                if isinstance(asked, dict)
                else asked.model_dump_json()
            )
            key = f"{compute.__name__} {sorted(options)} {text}"
            if key not in self._made:
                self._made[key] = compute(asked, *others, **options)
            return self._made[key]

        return made


def patched() -> ExitStack:
    """Return a context in which nothing is planned twice of the same settings."""
    known, stack = Known(), ExitStack()
    for place, compute in (
        ("capplan.report.received.verify.plan", plan),
        ("capplan.report.received.verify.reproduce", reproduce),
        ("capplan.report.received.verify_budget.budget", budget),
        ("capplan.report.received.verify_autoscale.autoscale", autoscale),
        ("capplan.planning.budget.budget.budget", budget),
        ("capplan.planning.what_if.what_if.what_if", what_if),
    ):
        stack.enter_context(mock.patch(place, known(compute)))
    return stack


def digested(folder: Path, text: str) -> set[str]:
    """Return what is read for its digest: the trace and profiles beside a file."""
    settings = json.loads(text)["settings"]
    names = settings if isinstance(settings, dict) else {}
    given = [names.get("trace"), names.get("profiles")]
    return {str(folder / Path(x).name) for x in given if isinstance(x, str)}


def wrong(folder: Path, command: str, text: str) -> str:
    """Return what a command did wrong with a forged file; empty: nothing."""
    path = folder / "forged.json"
    path.write_text(text)
    known = [path, *(folder / name for name in (*_MADE, "own.csv"))]
    with watched(allowed=known) as seen:
        code, printed = answer(command.replace("FILE", "forged.json"))
    opened = [each for each in seen if each not in digested(folder, text)]
    parents = (folder, folder.parent)
    executed = [each for each in parents if (each / "executed").exists()]
    if code not in (0, 1, 2, 3, 4):
        return f"exit {code}: {printed[-300:]}"
    if opened or executed:
        return f"opened {opened}, executed {executed}"
    if any(ord(each) < 32 and each not in "\n\t\r" for each in printed):
        return f"control characters: {printed!r}"
    return ""


def draws(
    documents: dict[str, dict[str, Any]], rng: random.Random
) -> Iterator[tuple[str, tuple, Any, bool]]:
    """Yield kinds of files, places, values and whether to seal, settings more often."""
    every = {kind: list(places(document)) for kind, document in documents.items()}
    kinds = [*documents]
    while True:
        kind = rng.choice(kinds)
        of_settings = [at for at in every[kind] if at[0] in ("settings", "certificate")]
        where = rng.choice(rng.choice([every[kind], of_settings]))
        yield kind, where, rng.choice(VALUES), rng.random() < 0.9


def run(folder: Path, seconds: float, seed: int, told: Callable[[str], Any]) -> int:
    """Try changes for so long; tell of each that goes wrong, and return how many."""
    begun, tried, failed = time.monotonic(), 0, 0
    documents = make(folder)
    with patched():
        for kind, where, value, sealed in draws(documents, random.Random(seed)):
            text = forged(documents[kind], where, value, sealed)
            for command in COMMANDS[kind]:
                tried += 1
                if why := wrong(folder, command, text):
                    failed += 1
                    told(f"{command} of {kind} {where} = {value!r:.60} {sealed}: {why}")
            if time.monotonic() - begun > seconds:
                break
    told(f"seed {seed}: {tried:,} commands, {failed} wrong, {seconds:g} s")
    return failed


if __name__ == "__main__":
    from tempfile import mkdtemp

    place = Path(mkdtemp()) / "received"
    place.mkdir()
    os.chdir(place)
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    sys.exit(bool(run(place, float(sys.argv[1]), seed, partial(print, flush=True))))
