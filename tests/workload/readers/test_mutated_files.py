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

import pytest

from capplan.errors import InputError, TraceWarning
from capplan.workload.readers import read_trace
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
}
VALUES = [None, "", "x", 'é\n,;"', True, False, 0, -1, 1.5, 1e300, 2**70, "1,5", "nan"]
VALUES += [[], {}, [1], {"a": [{"b": 2}]}, "2026-01-01T10:00:00+02:00", "2026-01-01"]
VALUES += [1_780_000_000, 1_780_000_000_000, "1780000000000000000", "01/02/2026 10:00"]
LEFT_OUT = re.compile(r"([\d,]+) of [\d,]+ (?:rows|requests) |([\d,]+) lines go on")
READ = re.compile(r"requests from ([\d,]+) conversations")


def rows_of(text):
    """Return the rows of a sample."""
    if text[0] not in "[{":
        return list(csv.DictReader(io.StringIO(text)))
    if text[0] == "[":
        return json.loads(text)
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def mutate(rows, rng):
    """Change keys, values, units and nesting of some rows."""
    rows = [json.loads(json.dumps(row)) for row in rows]
    for _ in range(rng.randrange(4)):
        key = rng.choice(sorted({key for row in rows for key in row}) or ["a"])
        value, change = copy.deepcopy(rng.choice(VALUES)), rng.randrange(6)
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
        top = {"data": rows} if form == "wrapped" else rows
        text = json.dumps(top, indent=2 if form == "spread" else None)
    encoding = rng.choice(["utf-8"] * 6 + ["utf-8-sig", "utf-16", "latin-1"])
    data = text.encode(encoding, errors="replace")
    return gzip.compress(data) if rng.random() < 0.1 else data


def read(path, rule):
    """Return what is said of a file and its requests, None where it is refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)
        try:
            trace = read_trace(path, sharegpt_rule=rule)
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
        path.write_bytes(written(rows, rng))
        rule = rng.choice(["first", "vllm", "multiturn"])

        said, count = read(path, rule)
        if count is None:
            assert str(path) in said
            assert "\n" not in said
            continue
        left_out = sum(
            int((a or b).replace(",", "")) for a, b in LEFT_OUT.findall(said)
        )
        if found := READ.search(said):
            assert int(found[1].replace(",", "")) == len(rows), said
        else:
            assert count + left_out == len(rows), said
