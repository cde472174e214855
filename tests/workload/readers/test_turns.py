"""Conversations by columns of a CSV or JSON: who shares and waits, what is wrong."""

import json

import numpy as np
import pytest

from capplan.errors import InputError
from capplan.workload.readers import read_trace
from capplan.workload.readers.chunks import can_be_streamed

HEADER = "id,arrival_s,prompt_tokens,output_tokens,parent,prefix_tokens,after,think_s\n"
CHAT = HEADER + "a,0,8,5,s,6,,\nb,,16,2,a,13,a,1\nc,,20,2,b,18,,0.5\nd,3,9,1,s,8,,\n"


def read(tmp_path, text, name="chat.csv"):
    path = tmp_path / name
    path.write_text(text)
    return read_trace(path)


def rows(trace):
    names = "arrival_s", "parent", "prefix_group", "prefix_tokens", "after", "think_s"
    return {name: getattr(trace, name).tolist() for name in names}


def test_turns_are_read_of_the_columns_that_scripts_write(tmp_path):
    trace = read(tmp_path, CHAT)

    assert rows(trace) == {
        "arrival_s": pytest.approx([0, np.nan, np.nan, 3], nan_ok=True),
        "parent": [-1, 0, 1, -1],
        "prefix_group": [0, -1, -1, 0],
        "prefix_tokens": [6, 13, 18, 8],
        "after": [-1, 0, 1, -1],
        "think_s": [0, 1, 0.5, 0],
    }
    assert trace.text_names == ("s",)


def test_json_lines_are_read_as_the_csv_is(tmp_path):
    header, *lines = CHAT.splitlines()
    cells = [
        dict(zip(header.split(","), line.split(","), strict=True)) for line in lines
    ]
    numbers = {
        "arrival_s",
        "prompt_tokens",
        "output_tokens",
        "prefix_tokens",
        "think_s",
    }
    objects = [
        {k: float(v) if k in numbers else v for k, v in row.items() if v}
        for row in cells
    ]
    objects[2]["after"] = ["b", "a"]

    trace = read(tmp_path, "\n".join(map(json.dumps, objects)), "chat.jsonl")

    expected = rows(read(tmp_path, CHAT))
    assert rows(trace) == expected | {
        "arrival_s": pytest.approx(expected["arrival_s"], nan_ok=True)
    }
    assert trace.joins.tolist() == [[2, 0]]


def test_a_join_lists_ids_with_semicolons(tmp_path):
    trace = read(tmp_path, CHAT.replace("b,18,,0.5", "b,18,b;a,0.5"))

    assert (trace.after.tolist(), trace.joins.tolist()) == ([-1, 0, 1, -1], [[2, 0]])


def test_rows_with_arrivals_are_sorted_and_keep_their_parents(tmp_path):
    text = "id,arrival_s,prompt_tokens,output_tokens,parent,prefix_tokens\n"
    with pytest.warns(match="sorted by arrival"):
        trace = read(tmp_path, text + "x,5,9,1,,\na,1,8,5,,\nb,7,16,2,a,13\n")

    assert trace.parent.tolist() == [-1, -1, 0]
    assert not trace.has_waits


def test_sessions_without_times_have_none(tmp_path):
    trace = read(tmp_path, CHAT.replace("a,0,", "a,,").replace("d,3,", "d,,"))

    assert trace.arrival_s is None
    assert trace.after.tolist() == [-1, 0, 1, -1]


def test_columns_of_those_names_without_ids_stay_ignored(tmp_path):
    text = "arrival_s,prompt_tokens,output_tokens,turn,agent,parent\n0,5,6,user,x,y\n"
    with pytest.warns(match="ignored columns: turn, agent, parent"):
        trace = read(tmp_path, text)

    assert not trace.has_turns


def test_conversations_are_not_streamed(tmp_path):
    read(tmp_path, CHAT)

    assert not can_be_streamed(tmp_path / "chat.csv", None, {})


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("b,,16", "b,4,16", r":3: arrival_s is 4; expected no arrival beside after"),
        ("a,13,a", "c,13,a", r":3: parent is c; expected a request of a row before it"),
        ("a,13,a", "a,14,a", r":3: prefix_tokens is 14; expected at most 13"),
        (
            "a,13,a",
            "a,17,a",
            r":3: prefix_tokens is 17; expected at most the tokens of",
        ),
        (
            "a,13,a",
            "a,13,c",
            r":3: after is c; expected no request that waits for this",
        ),
        ("a,13,a", "a,13,z", r":3: after is z; expected the id of a request"),
        ("a,13,a,1", "a,13,a,-1", r":3: think_s is -1; expected seconds from 0"),
        ("c,,20", "b,,20", r":4: id is b; expected an id that no other row has"),
        ("c,,20", ",,20", r":4: id is empty; expected an id of its own"),
        (",0.5", ",", r":4: arrival_s is empty; expected seconds"),
        (
            "a,0,8,5",
            "a,0,8,0",
            r":3: parent is a; expected a request that was answered",
        ),
        ("d,3,9,1,s,8", "d,3,9,1,,8", r":5: prefix_tokens is 8; expected 0, or more"),
    ],
)
def test_what_cannot_be_is_refused_with_its_line(tmp_path, old, new, said):
    assert old in CHAT
    with pytest.raises(InputError, match=said):
        read(tmp_path, CHAT.replace(old, new))
