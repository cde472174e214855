"""Rows of JSON and Parquet files are flat records with their place."""

import gzip
import json
import sys

import pytest

from capplan.errors import InputError
from capplan.records import first_values, form, records


@pytest.fixture
def write(tmp_path):
    def written(content, name="rows.json"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return written


ROWS = [{"a": 1, "usage": {"prompt_tokens": 7}}, {"a": 2, "b": "x"}]
FLAT = [{"a": 1, "usage.prompt_tokens": 7}, {"a": 2, "b": "x"}]
SHAPES = {
    "lines": "\n".join(map(json.dumps, ROWS)),
    "lines and blanks": "\n\n" + "\r\n\n".join(map(json.dumps, ROWS)) + "\n",
    "array": json.dumps(ROWS),
    "indented array": json.dumps(ROWS, indent=2),
    "one after the other": "".join(map(json.dumps, ROWS)),
    "indented objects": "\n".join(json.dumps(row, indent=1) for row in ROWS),
    "wrapped": json.dumps({"object": "list", "data": ROWS}),
    "wrapped, indented": json.dumps({"data": ROWS, "has_more": False}, indent=2),
    "wrapped lines": "\n".join(json.dumps({"data": [row]}) for row in ROWS),
    "byte order mark": "\ufeff" + "\n".join(map(json.dumps, ROWS)),
    "byte order mark and array": "\ufeff" + json.dumps(ROWS),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("zipped", [False, True])
def test_the_same_rows_are_read_of_every_shape(write, shape, zipped):
    content = SHAPES[shape].encode()
    path = write(gzip.compress(content) if zipped else content)

    assert form(path) == "json"
    assert [row.fields for row in records(path)] == FLAT
    assert first_values(path) == {"a": 1, "usage.prompt_tokens": 7, "b": "x"}


def test_spans_of_opentelemetry_are_rows_and_attributes_are_fields(write):
    span = {
        "name": "chat",
        "attributes": [
            {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "388"}},
            {"key": "gen_ai.request.model", "value": {"stringValue": "qwen"}},
            {"key": "tags", "value": {"arrayValue": {"values": []}}},
        ],
    }
    path = write(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}))

    (place, fields), *_ = records(path)

    assert place == ":1, resourceSpans 1, scopeSpans 1, spans 1"
    assert fields["attributes.gen_ai.usage.input_tokens"] == "388"
    assert fields["attributes.gen_ai.request.model"] == "qwen"


def test_an_empty_list_does_not_hide_the_row_that_has_it(write):
    path = write('{"a": 1, "data": [], "items": ["x"]}')

    assert next(records(path)).fields["a"] == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"a": 1}\noops\n', ":2: not JSON"),
        ('{"a": 1}\n{"a": ', ":2: not JSON"),
        ('{\n"a": 1,\n}', ":3: not JSON"),
        ('{"a": 1}\n[1]\n', ":2: no object"),
        ("[1]", ": item 1: no object"),
        ('[{"a": 1}, {"a"', "it ends in the middle, at character 15"),
        ('[{"a": 1}, oops]', "not JSON: Expecting value at character 11"),
        ('{"a": 1}\n{"a": 1, "a": 2}\n', ":2: the key 'a' appears twice"),
        ('{"a.b": 1, "a": {"b": 2}}', ":1: 'a.b' appears twice"),
        ('{"a": ' + "[" * 100_000, ":1: not JSON: nested too deeply"),
        (b'{"a": "\xff"}', "not UTF-8 text"),
        ('{"a": ' + "9" * 5000 + "}", ":1: not JSON: Exceeds the limit"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(write, content, message):
    with pytest.raises(InputError) as caught:
        list(records(write(content)))

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("head", "named"),
    [
        (b"PK\x03\x04\x14\0", "a zip archive; .*: unzip "),
        (
            b"PK\x03\x04\x14\0xl/workbook.xml",
            "an Excel workbook; .*: save its sheet as",
        ),
        (b"a.csv".ljust(257, b"\0") + b"ustar", "a tar archive; .*: tar xf "),
        (b"BZh91", "compressed by bzip2; .*: bunzip2 "),
        (b"SQLite format 3\0", "an SQLite database"),
        (b"ARROW1\0\0", "an Arrow file"),
        ("a,b\n".encode("utf-16"), "text in UTF-16; .*: iconv -f UTF-16 "),
        (b"\x28\xb5\x2f\xfd", "compressed by zstd"),
        (b"a,b\n1,\0\0", "bytes that are no text"),
    ],
)
def test_a_file_that_is_no_text_is_named_and_not_printed(write, head, named):
    with pytest.raises(InputError, match=named) as caught:
        form(write(head))

    assert "\\x" not in str(caught.value)


def test_parquet_without_its_package_says_what_to_install(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(InputError, match=r"pip install 'capplan\[parquet\]'"):
        list(records(write(b"PAR1....PAR1")))


def test_parquet_has_the_same_rows(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)

    read = [
        {name: value for name, value in row.fields.items() if value is not None}
        for row in records(path)
    ]

    assert read[0] == FLAT[0]
    assert [row.place for row in records(path)] == [": row 1", ": row 2"]
    kept = [row.fields for row in records(path, ["usage.prompt_tokens"])]
    assert kept[0] == {"usage.prompt_tokens": 7}


def test_parquet_that_is_cut_off_is_refused(write):
    pytest.importorskip("pyarrow")

    with pytest.raises(InputError, match="not a whole Parquet file"):
        list(records(write(b"PAR1" + b"\0" * 100)))


def test_rows_may_keep_what_is_around_them(write):
    path = write(json.dumps({"tool": {"v": 1}, "a": 0, "rows": ROWS}))

    found = [fields for _, fields in records(path, wrappers=["rows"], around=True)]

    assert found == [{"tool.v": 1, "a": 0} | row for row in FLAT]


def test_an_array_may_hold_the_infinity_that_python_writes(write):
    path = write('[{"a": 1}, {"a": Infinity}, {"a": 3}]')

    found = [(place, fields["a"]) for place, fields in records(path)]

    assert found == [(": item 1", 1), (": item 2", float("inf")), (": item 3", 3)]
