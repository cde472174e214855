"""Every CSV of a user is read by one reader, and refused for the same reasons."""

import warnings
from pathlib import Path

import pytest

from capplan.calibration.sweep_file import read_sweep
from capplan.csv_file import read_rows
from capplan.errors import CapplanWarning, InputError
from capplan.fleet.prices import Market, price
from capplan.input_file import parse_json, read_text
from capplan.latency.importers import read_measurements
from capplan.latency.importers.identity import identity_in
from capplan.placement.snapshot import read_snapshot
from capplan.workload.readers import read_trace

READ = {
    "trace": (
        read_trace,
        "arrival_s,prompt_tokens,output_tokens\n1,10,20\n2,11,21\n3,12,22\n",
    ),
    "sweep": (
        lambda path: read_sweep(path, 1, {}),
        "isl,osl,concurrency,tpot_ms\n100,50,1,20\n100,50,2,22\n100,50,4,25\n",
    ),
    "prices": (
        lambda path: price("H100", Market(file=path)),
        "gpu,usd_per_gpu_h,as_of\nH100,2,2026-11-01\nL4,1,2026-11-01\nH200,3,2026-11-01\n",
    ),
    "points": (
        read_measurements,
        "phase,batch,new_tokens,context,seconds\n"
        "decode,1,1,10,0.02\ndecode,2,2,10,0.03\ndecode,4,4,10,0.04\n",
    ),
    "splitwise": (
        read_measurements,
        "prompt_size,batch_size,token_size,prompt_time,token_time\n"
        "100,1,10,20,30\n200,1,10,25,30\n300,1,10,30,30\n",
    ),
    "identity": (
        lambda path: identity_in(path, {}),
        "gpu,llm,tp\nH100,x,1\nH100,x,1\nH100,x,1\n",
    ),
    "snapshot": (
        read_snapshot,
        "prompt_tokens,predicted_output_tokens,replica\n10,20,-1\n11,21,-1\n12,22,-1\n",
    ),
}
"""What reads each kind of file, and a sound file of three rows."""


@pytest.fixture
def file(tmp_path):
    def write(text, name="file.csv"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def read(kind, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CapplanWarning)
        return READ[kind][0](path)


def refused(kind, path):
    """Return the one line of a refusal that names the file."""
    with pytest.raises(InputError) as caught:
        read(kind, path)
    text = str(caught.value)
    assert text.startswith(str(path))
    assert "\n" not in text
    return text


@pytest.mark.parametrize("kind", READ)
def test_the_sound_file_is_read_or_lacks_only_what_no_csv_has(kind, file):
    path = file(READ[kind][1])
    if kind == "snapshot":
        assert "no replica; give --llm" in refused(kind, path)
        return

    assert read(kind, path) is not None


@pytest.mark.parametrize("kind", READ)
def test_a_duplicate_column_is_refused_in_every_csv(kind, file):
    lines = READ[kind][1].splitlines()
    first = lines[0].split(",")[0]
    doubled = [f"{lines[0]},{first}", *(f"{line},1" for line in lines[1:])]

    assert f":1: column {first} appears twice" in refused(
        kind, file("\n".join(doubled))
    )


@pytest.mark.parametrize("kind", READ)
def test_a_row_with_a_field_too_many_is_refused_in_every_csv(kind, file):
    lines = READ[kind][1].splitlines()
    width = lines[0].count(",") + 1
    lines[2] += ",7"

    text = refused(kind, file("\n".join(lines)))

    assert f":3: {width + 1} fields; expected {width} as in the header" in text


@pytest.mark.parametrize("kind", READ)
def test_a_header_without_rows_is_refused_in_every_csv(kind, file):
    header = READ[kind][1].splitlines()[0]

    assert "under the header; expected some" in refused(kind, file(f"{header}\n"))


@pytest.mark.parametrize(
    ("kind", "old", "column"),
    [
        ("sweep", ",25\n", "tpot_ms"),
        ("prices", ",3,", "usd_per_gpu_h"),
        ("points", ",0.04\n", "seconds"),
        ("splitwise", ",30,30\n", "prompt_time"),
    ],
)
def test_a_billion_among_tens_is_refused_with_its_line(kind, old, column, file):
    new = old.replace(old.split(",")[1].rstrip("\n"), "1e9", 1)
    path = file(READ[kind][1].replace(old, new, 1))
    line = (
        path.read_text()
        .splitlines()
        .index(next(row for row in path.read_text().splitlines() if "1e9" in row))
    )

    text = refused(kind, path)

    assert text.startswith(f"{path}:{line + 1}: {column} is 1e+09, where the middle")


def test_a_quote_that_is_not_closed_is_refused(file):
    with pytest.raises(InputError, match="quotes that are closed"):
        read_rows(file('a,b\n1,"2\n3,4\n'))


def test_lines_that_end_in_a_lone_carriage_return_are_refused(file):
    path = file("")
    path.write_bytes(b"arrival_s,prompt_tokens,output_tokens\r0,10,10\r1,20,20\r")

    with pytest.raises(InputError, match="a lone carriage return ends its lines"):
        read_trace(path)


def test_an_empty_cell_and_a_missing_one_are_alike(file):
    rows = read_rows(file("a,b\n1,\n2\n"))[1]

    assert rows == [(2, {"a": "1", "b": ""}), (3, {"a": "2", "b": ""})]


def test_a_pipe_or_a_device_is_refused():
    with pytest.raises(InputError, match="is a pipe or a device; expected a file"):
        read_text(Path("/dev/zero"))


def test_a_text_larger_than_what_is_read_whole_is_refused(file):
    with pytest.raises(InputError, match="holds more than 1 MiB"):
        read_text(file("x" * (2**20 + 1)), most_bytes=2**20)


def test_a_key_that_stands_twice_in_json_is_refused():
    with pytest.raises(InputError, match="the key 'b' appears twice in one object"):
        parse_json("x.json", '{"a": {"b": 1, "b": 2}}')


@pytest.mark.parametrize("kind", ["points", "splitwise", "sweep"])
def test_a_measurement_of_1e31_prompts_is_refused_with_its_line(kind, file):
    number = {"points": "decode,4,4", "splitwise": "300,1", "sweep": "100,50,4"}[kind]
    path = file(READ[kind][1].replace(number, number[:-1] + "1e31"))

    assert "1e+31; expected at most 1e+" in refused(kind, path)
