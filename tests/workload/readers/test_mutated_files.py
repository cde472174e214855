"""Any file is read whole, with what is left out said, or refused in one line.

With ``FILES=750000`` in the environment and ``-m thorough`` it runs for about an hour.
"""

import copy
import csv
import gzip
import io
import json
import os
import random
import re
import warnings
from math import inf

import pytest

from capplan.calibration.sweep_file import read_sweep
from capplan.errors import CapplanWarning, InputError, TraceWarning
from capplan.workload.readers import read_trace
from tests.calibration import test_sweep_file as sweeps
from tests.test_docs_inputs import LOAD_TESTS
from tests.workload.readers.test_conversations import CHAT, wildchat
from tests.workload.readers.test_formats import SAMPLES

FILES = int(os.environ.get("FILES", "2000"))
PER_SEED = 100
TEXTS = {
    "messages": json.dumps({"messages": CHAT}),
    "wildchat": json.dumps(wildchat()),
    "batch": json.dumps(
        {"custom_id": "a", "body": {"messages": CHAT, "max_tokens": 9}}
    ),
    "jaeger": json.dumps(
        {
            "startTime": 1_780_000_000_000_000,
            "tags": [
                {"key": f"gen_ai.usage.{kind}_tokens", "type": "int64", "value": 7}
                for kind in ("input", "output")
            ],
        }
    ),
    "mongodb": json.dumps(
        {
            "createdAt": {"$date": "2026-01-01T10:00:00Z"},
            "prompt_tokens": {"$numberInt": "5"},
            "completion_tokens": {"$numberLong": "6"},
        }
    ),
    "events": json.dumps(
        {
            **{"type": "GENERATION", "level": "DEFAULT"},
            "startTime": "2026-01-01T10:00:00Z",
            "usageDetails": {"input": 5, "output": 6, "input_cached_tokens": 7},
        }
    ),
    "gemini": json.dumps(
        {
            "time": "2026-01-01T10:00:00Z",
            "cache_status": "MISS",
            "usageMetadata": {
                **{"promptTokenCount": 5, "candidatesTokenCount": 6},
                **{"thoughtsTokenCount": 7, "totalTokenCount": 18},
            },
        }
    ),
    "calls": "\n".join(
        json.dumps(
            {
                **{"trace_id": "t", "id": own, "parent_id": parent},
                "start": "2026-01-01T10:00:00Z",
                "usage": {"requests": 1, "prompt_tokens": 5, "completion_tokens": 6},
            }
        )
        for own, parent in (("agent", None), ("call", "agent"), ("other", None))
    ),
    "sheet": "time;prompt_tokens;output_tokens\n0,5;1,317;5\n1,25;2,001;1,024\n",
    "nginx": "time_local,prompt_tokens,output_tokens\n10/Oct/2025:13:55:36 +0000,5,6\n",
}
VALUES = [None, "", "x", 'é\n,;"', True, False, 0, -1, 1.5, 1e300, 2**70, "1,5", "nan"]
VALUES += [[], {}, [1], {"a": [{"b": 2}]}, "2026-01-01T10:00:00+02:00", "2026-01-01"]
VALUES += ["0,5", "1,317", "1.317", "09/14/2026 8:00:00 AM", "14.09.2026 08:00"]
VALUES += ["[10/Oct/2025:13:55:36 +0000]", '{"input": 5, "output": 6}']
VALUES += [1_780_000_000, 1_780_000_000_000, "1780000000000000000", "01/02/2026 10:00"]
DAYS = ["2026-10-16", "0000-00-00", "2026-02-30", "20261016", "2026-W42-5", "2026-290"]
DAYS += ["9999-12-31", "0001-01-01", "1677-01-01", "16/10/2026", "16 Oct 2026"]
CLOCKS = ["08:00:02:204", "08:00:02 CEST", "8:00:02.204 AM", "24:00:00Z", "00:00:00"]
CLOCKS += ["08:00:60Z", "08:00:02+25:00", "08:00:02 UTC", "08:00:02.2 -0700", "", "x"]
DATES = [f"{day}{by}{clock}" for day in DAYS for by in " T," for clock in CLOCKS]
LEFT_OUT = re.compile(r"([\d,]+) of [\d,]+ (?:rows|requests) |([\d,]+) lines go on")
SALVAGED = re.compile(r"after ([\d,]+) whole records, which are kept")
READ = re.compile(r"requests from ([\d,]+) conversations")


def rows_of(text):
    """Return the rows of a sample."""
    if text[0] not in "[{":
        return list(csv.DictReader(io.StringIO(text), delimiter=separator(text)))
    if text[0] == "[":
        return json.loads(text)
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def separator(text):
    return ";" if ";" in text.partition("\n")[0] else ","


def opened_text(data):
    """Return the text of a file's bytes."""
    data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    return data.decode("utf-8-sig")


def mutate(rows, rng):
    """Change keys, values, units and nesting of some rows."""
    rows = [json.loads(json.dumps(row)) for row in rows]
    for _ in range(rng.randrange(4)):
        key = rng.choice(sorted({key for row in rows for key in row}) or ["a"])
        values = DATES if rng.random() < 0.25 else VALUES
        value, change = copy.deepcopy(rng.choice(values)), rng.randrange(6)
        factor = rng.choice([1e-3, 1e3, 1e6, 1e9])
        one_row = rng.randrange(len(rows)) if rng.random() < 0.5 else None
        for k, row in enumerate(rows):
            if key not in row or one_row not in (None, k):
                continue
            if change == 0:
                row[key] = value
            elif change == 1:
                del row[key]
            elif change == 2:
                row[rng.choice([key.upper(), f"{key}_ms", "usage.x", "id"])] = row[key]
            elif change == 3:
                row[key] = {"inner": row[key]}
            elif change == 4 and isinstance(row[key], int | float):
                row[key] *= factor
            elif isinstance(row[key], list) and row[key]:
                row[key][rng.randrange(len(row[key]))] = value
    return rows


def written(rows, rng):
    """Return the bytes of a file of rows, in one of the forms that people have."""
    form = rng.choice(["csv", "csv", "lines", "lines", "array", "spread", "wrapped"])
    about = rng.choice([{}, {"page": 1, "total_pages": 9}, {"meta": {"totalPages": 1}}])
    if form == "csv":
        names = list(dict.fromkeys(key for row in rows for key in row))
        file = io.StringIO()
        writer = csv.DictWriter(file, names, delimiter=rng.choice(",,;\t"))
        writer.writeheader()
        for row in rows:
            writer.writerow(
                {
                    k: json.dumps(v) if isinstance(v, list | dict) else v
                    for k, v in row.items()
                }
            )
        text = file.getvalue()
    elif form == "lines":
        text = "".join(json.dumps(row) + "\n" for row in rows)
    else:
        top = {"data": rows, **about} if form == "wrapped" else rows
        text = json.dumps(top, indent=2 if form == "spread" else None)
        if form == "array" and rng.random() < 0.2:
            text = text[:-1] + ",\n]"
    if form == "lines" and rng.random() < 0.05:
        text = f"[2026-01-01 10:00:00.000][1][info] begins\n{text}"
    encoding = rng.choice(["utf-8"] * 6 + ["utf-8-sig", "utf-16", "latin-1"])
    data = text.encode(encoding, errors="replace")
    whole = form == "csv" or rng.random() < 0.8
    data = data if whole else data[: rng.randrange(1, len(data))]
    data = gzip.compress(data) if rng.random() < 0.1 else data
    return data if whole or rng.random() < 0.5 else data[:-1], whole


def read(path, rule, salvage):
    """Return what is said of a file and its requests, None where it is refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)
        try:
            trace = read_trace(path, sharegpt_rule=rule, salvage=salvage)
        except InputError as error:
            return str(error), None
    return "; ".join(trace.notes), len(trace)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(FILES // PER_SEED))
def test_a_file_is_read_whole_or_refused_in_one_line(tmp_path, seed):
    rng = random.Random(seed)
    for number in range(PER_SEED):
        name = rng.choice(sorted(SAMPLES | TEXTS))
        rows = rows_of((SAMPLES | TEXTS)[name]) * rng.randint(1, 4)
        rows = mutate(rows, rng)
        path = tmp_path / f"{number}-{name}"
        data, is_whole = written(rows, rng)
        path.write_bytes(data)
        rule = rng.choice(["first", "vllm", "multiturn"])

        said, count = read(path, rule, rng.random() < 0.5)
        kept = len(rows)
        if found := SALVAGED.search(said):
            assert not is_whole
            kept = int(found[1].replace(",", ""))
        elif not is_whole and count is not None:  # cut between two rows
            kept = len(rows_of(opened_text(data)))
        if count is None:
            assert str(path) in said
            assert "\n" not in said
            continue
        left_out = sum(
            int((a or b).replace(",", "")) for a, b in LEFT_OUT.findall(said)
        )
        if found := READ.search(said):
            assert int(found[1].replace(",", "")) == kept, said
        else:
            assert count + left_out == kept, said


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(FILES // PER_SEED // 4))
def test_a_load_test_is_read_or_refused_in_one_line(tmp_path, seed):
    rng = random.Random(seed)
    for number in range(PER_SEED // 4):
        name = rng.choice(sorted(LOAD_TESTS))
        test, users = LOAD_TESTS[name], rng.sample((1, 4, 8, 16, 64), 3)
        rows = mutate([sweeps.changed(test, count) for count in users], rng)
        folder = tmp_path / f"{number}"
        folder.mkdir()
        path = folder / name.rpartition("/")[2].format(8)
        path.write_bytes(written(rows, rng)[0])
        said, points = f"{folder}", ()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CapplanWarning)
            try:
                points = read_sweep(rng.choice([path, folder]), 1, {}).points
            except InputError as error:
                said = str(error)
        assert str(folder) in said
        assert "\n" not in said
        for point in points:
            assert 0 < (point.tpot_s or point.output_tokens_per_s or point.ttft_s) < inf
