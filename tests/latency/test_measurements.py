"""The CSV of points: what each phase means, and one clear line for what is wrong."""

import gzip

import pytest

from capplan.errors import CapplanWarning, InputError
from capplan.latency.measurements import points_from_rows, read_points

HEADING = "phase,batch,new_tokens,context,seconds\n"


def test_each_phase_counts_tokens_as_its_columns_mean():
    points = points_from_rows(
        [
            ("prefill", 2, 600, 100, 1),  # two prompts of 300 on 100 cached each
            ("decode", 4, 4, 50, 1),
            ("mixed", 4, 104, 50, 1),  # a chunk of 100 beside four requests
        ]
    )

    assert points.prefill_tokens.tolist() == [600, 0, 100]
    assert points.decoding.tolist() == [0, 4, 4]
    assert points.decode_context.tolist() == [0, 200, 200]
    # 2 × 300·(100 + 150); a chunk that starts from nothing: 100·50
    assert points.attention.tolist() == [150_000, 0, 5_000]
    assert points.kv_tokens.tolist() == [800, 200, 300]


def test_a_table_is_read_as_columns_with_a_prefix_of_zero_where_it_has_none(tmp_path):
    file = tmp_path / "p.csv"
    file.write_text(HEADING + "prefill,1,128,0,0.0123456789\nmixed,8,520,1024,0.02\n")

    points = read_points(file)

    assert points.phase.tolist() == [0, 2]
    assert points.new_tokens.tolist() == [128, 520]
    assert points.prefix.tolist() == [0, 0]
    assert points.seconds.tolist() == [0.0123456789, 0.02]


def test_the_prefix_of_a_chunk_adds_attention_work_and_kv(tmp_path):
    file = tmp_path / "p.csv"
    file.write_text(
        "phase,batch,new_tokens,context,prefix,seconds\nmixed,4,104,50,1000,0.02\n"
        "mixed,4,104,50,,0.02\n"
    )

    points = read_points(file)

    assert points.prefix.tolist() == [1000, 0]
    # chunk of 100: 100·(1000 + 50) after a prefix, 100·50 without
    assert points.attention.tolist() == [105_000, 5_000]
    assert points.kv_tokens.tolist() == [1300, 300]


def test_one_configuration_of_many_is_chosen(tmp_path):
    file = tmp_path / "many.csv.gz"
    with gzip.open(file, "wt") as out:
        out.write("model,tp,phase,batch,new_tokens,context,seconds\n")
        out.write("a,1,decode,1,1,10,0.01\na,2,decode,1,1,10,0.02\n")

    chosen = read_points(file, {"tp": "2"})

    assert chosen.seconds.tolist() == [0.02]
    with pytest.raises(InputError, match=r"2 configurations \(tp=1 and 2"):
        read_points(file)


def test_points_measured_twice_are_averaged_and_said(tmp_path):
    file = tmp_path / "twice.csv"
    file.write_text(HEADING + "decode,1,1,9,0.01\ndecode,1,1,9,0.03\n")

    with pytest.warns(CapplanWarning, match="2 points are 1 different"):
        points = read_points(file)

    assert points.seconds.tolist() == [0.02]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("phase,batch\n", r"bad.csv:1: column new_tokens, context, seconds is missing"),
        (HEADING, "no row"),
        (HEADING + "decode,1,1,9,nan\n", r"bad.csv:2: seconds is 'nan'"),
        (HEADING + "decode,1,1,9,\n", r"bad.csv:2: seconds is empty"),
        (HEADING + "decode,one,1,9,1\n", r"bad.csv:2: batch is 'one'"),
        (HEADING + "decode,1,1,9,0\n", r"bad.csv:2: seconds is 0; expected > 0"),
        (HEADING + "decode,0,1,9,1\n", r"bad.csv:2: batch is 0; expected >= 1"),
        (HEADING + "decode,1,1,-9,1\n", r"bad.csv:2: context is -9"),
        (HEADING + "warm,1,1,9,1\n", r"bad.csv:2: phase is 'warm'"),
        (HEADING + "mixed,8,8,9,1\n", r"bad.csv:2: new_tokens is 8 beside 8"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path, text, message):
    file = tmp_path / "bad.csv"
    file.write_text(text)

    with pytest.raises(InputError, match=message):
        read_points(file)


def test_a_file_that_is_not_there_is_one_clear_line(tmp_path):
    with pytest.raises(InputError, match=r"none\.csv: no such file"):
        read_points(tmp_path / "none.csv")
