"""Files that are cut off, have text among their rows, or are folders."""

import bz2
import gzip
import json
import shutil
import subprocess
import sys
import warnings

import pytest

from capplan.errors import InputError, TraceWarning
from capplan.workload.readers import read_trace
from capplan.workload.readers.chunks import iterate_trace

ROWS = [
    {"arrival_s": k / 2, "prompt_tokens": 9 + k, "output_tokens": 5} for k in range(400)
]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a file and returns its path."""

    def written(content, name="log.json"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return written


def quietly(path, **given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)
        return read_trace(path, **given)


def refused(path, **given):
    with pytest.raises(InputError) as error:
        read_trace(path, **given)
    assert "\n" not in str(error.value)
    return str(error.value)


CUT = {
    "lines": LINES[:-9].encode(),
    "lines, the last half a character": LINES[:-3].encode() + '"é'.encode()[:-1],
    "array": json.dumps(ROWS)[:-9].encode(),
    "spread": "".join(json.dumps(row, indent=1) for row in ROWS)[:-9].encode(),
    "array in gzip": gzip.compress(json.dumps(ROWS)[:-9].encode()),
    "gzip of lines": gzip.compress(LINES.encode())[:-20],
}


@pytest.mark.parametrize("content", CUT.values(), ids=CUT)
def test_a_file_that_is_cut_off_names_salvage_which_keeps_its_whole_rows(
    write, content
):
    path = write(content)

    said = refused(path)
    with pytest.warns(TraceWarning, match=r"whole records, which are kept"):
        trace = read_trace(path, salvage=True)

    assert said.endswith(
        "whole records; get the whole file, or keep these with --salvage"
    )
    assert 200 < len(trace) < 400
    assert (
        trace.prompt_tokens.tolist()
        == [row["prompt_tokens"] for row in ROWS][: len(trace)]
    )
    with pytest.warns(TraceWarning, match=r"whole records, which are kept"):
        chunks = list(iterate_trace(path, 64, salvage=True))
    assert sum(map(len, chunks)) == len(trace)


def test_a_line_that_is_wrong_in_the_middle_is_not_salvaged(write):
    path = write(LINES.replace('{"arrival_s": 7.0,', '{"arrival_s": 7.0'))

    assert ":15: not JSON" in refused(path, salvage=True)


def test_a_file_without_one_whole_row_is_not_salvaged(write):
    assert ":1: not JSON" in refused(write(LINES[:20]), salvage=True)


def test_a_comma_behind_the_last_row_of_an_array_is_no_harm(write):
    path = write("[\n" + ",\n".join(map(json.dumps, ROWS)) + ",\n]\n")

    assert len(read_trace(path)) == 400


@pytest.mark.parametrize(
    "lines",
    [
        ["[2026-09-14 08:00:00.000][1][info] starting", "", "bye"],
        ["", "", "Error from server"],
        ["starting", "", ""],
    ],
)
@pytest.mark.parametrize("name", ["access log", "access.log.gz"])
def test_text_among_lines_of_json_gives_the_command_that_leaves_it_out(
    write, tmp_path, lines, name
):
    half = len(LINES) // 2 + LINES[len(LINES) // 2 :].index("\n") + 1
    first, second, third = (f"{line}\n" * bool(line) for line in lines)
    content = (first + LINES[:half] + second + third + LINES[half:]).encode()
    path = write(gzip.compress(content) if name.endswith("gz") else content, name)

    said = refused(path)
    command = said.partition("; ")[2].removesuffix(" keeps the lines of JSON")
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)

    assert len(read_trace(tmp_path / "rows.jsonl")) == 400


def test_objects_in_the_cells_of_a_table_are_no_lines_of_json(write):
    path = write('meta\tprompt_tokens\toutput_tokens\n{"a": 1}\t5\t6\n', "log.tsv")

    assert quietly(path).prompt_tokens.tolist() == [5]


HALVES = [LINES[: LINES.index('{"arrival_s": 100.0')]]
HALVES.append(LINES[len(HALVES[0]) :])
PARTS = range(200), range(200, 400)
CSV = "arrival_s,prompt_tokens,output_tokens\n"
FOLDERS = {
    "jsonl": HALVES,
    "json": [json.dumps(ROWS[:200]), json.dumps(ROWS[200:], indent=1)],
    "json.gz": [gzip.compress(half.encode()) for half in HALVES],
    "json.bz2": [bz2.compress(json.dumps(half).encode()) for half in (ROWS, [])],
    "csv.gz": [gzip.compress(CSV.encode() + b"1,5,6\n" * 200)] * 2,
    "csv": [CSV + "".join(f"{k},5,6\n" for k in part) for part in PARTS],
}


def test_files_of_one_line_become_a_line_each(write, tmp_path, monkeypatch):
    for number, row in enumerate(ROWS[:3]):
        write(json.dumps(row), f"sessions/{number}.json")

    said = refused(tmp_path / "sessions")
    monkeypatch.chdir(tmp_path)
    subprocess.run(said.partition("expected one file: ")[2], shell=True, check=True)

    assert len((tmp_path / "all.json").read_text().splitlines()) == 3


@pytest.mark.parametrize("end", FOLDERS)
def test_a_folder_of_logs_gives_the_command_that_makes_one_file(write, tmp_path, end):
    for number, half in enumerate(FOLDERS[end]):
        write(half, f"a log/2026/0{number}/part-{number}.{end}")
    write("x", "a log/.hidden")

    said = refused(tmp_path / "a log")
    command = said.partition("expected one file: ")[2]

    assert "is a folder of 2 files" in said
    if "jq" in command and shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    (made,) = tmp_path.glob("all.*")
    assert len(quietly(made)) == 400


def test_a_folder_of_parquet_is_made_one_by_a_package_that_reads_it(write, tmp_path):
    pytest.importorskip("pyarrow")
    import pandas as pd

    for number in (1, 2):
        pd.DataFrame(ROWS[:200]).to_parquet(write("", f"log/{number}.parquet"))

    command = refused(tmp_path / "log").partition("expected one file: ")[2]
    run = command.replace("python", sys.executable, 1)
    subprocess.run(run, shell=True, cwd=tmp_path, check=True)

    assert len(quietly(tmp_path / "all.parquet")) == 400


@pytest.mark.parametrize("name", ["", "chunk-3-trace.csv", "chunk-3-dataset.json"])
def test_the_clients_of_servegen_are_named_with_their_command(write, tmp_path, name):
    write("0,0.1,1.0,Gamma,0.25,8.0\n", "clients/chunk-3-trace.csv")
    write("{}", "clients/chunk-3-dataset.json")

    said = refused(tmp_path / "clients" / name)

    assert said.endswith(f"give --workload {tmp_path / 'clients'}")
