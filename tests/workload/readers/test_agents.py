"""Recorded conversations of each format, written by hand in the form of its source."""

import json
import warnings

import numpy as np
import pytest

from capplan.errors import InputError
from capplan.workload.readers import read_trace, sniffed
from capplan.workload.readers.recorded import waits


def read(tmp_path, name, *rows, **options):
    """Return the trace of a file of JSON lines, or of a CSV's lines."""
    path = tmp_path / name
    texts = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_text("\n".join(texts) + "\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return read_trace(path, **options)


def turns(trace, *names):
    return [np.asarray(getattr(trace, name)).tolist() for name in names]


def weka(t, prompt, output, first=0, **more):
    hashes = [
        *range(first),
        *range(1000 + 10 * first, 1000 + 10 * first + prompt // 64 - first),
    ]
    row = {"t": t, "type": "n", "model": "m", "in": prompt, "out": output}
    return row | {"hash_ids": hashes, "api_time": 2.0} | more


def append(t, prompt, output, **more):
    """Return a request whose blocks are those of all shorter ones, and more."""
    return weka(t, prompt, output, **more) | {"hash_ids": [*range(prompt // 64)]}


SESSION = {"id": "s", "block_size": 64, "tool_tokens": 100, "system_tokens": 28}


def test_a_weka_file_is_a_session_whose_turns_come_after_answers(tmp_path):
    requests = [
        append(0, 640, 20),
        append(7, 700, 30, think_time=3.0),
        append(20, 705, 10),  # less than the prompt and the answer before
        weka(30, 640, 5, first=4),  # compaction
    ]

    trace = read(tmp_path, "w.json", {**SESSION, "requests": requests})

    assert sniffed(tmp_path / "w.json") == "weka"
    assert turns(trace, "parent", "prefix_tokens") == [
        [-1, 0, 1, 2],
        [128, 660, 700, 256],
    ]
    assert turns(trace, "after", "think_s") == [[-1, 0, 1, 2], [0, 3, 11, 8]]
    assert trace.text_names == ("tools 100, system 28",)
    assert turns(trace, "recorded_s", "turn") == [[0, 7, 20, 30], [0, 1, 2, 3]]


def test_weka_sub_agents_fork_from_the_main_one_and_join_it(tmp_path):
    inner = [weka(12, 128, 5), weka(16, 200, 5)]  # absolute
    late = [weka(1, 128, 5, api_time=100)]  # from its spawn on
    requests = [
        append(0, 640, 20),
        {"t": 10, "type": "subagent", "agent_id": "a", "requests": inner},
        {"t": 10, "type": "subagent", "agent_id": "b", "requests": late},
        append(30, 700, 30, think_time=28.0),
    ]

    trace = read(tmp_path, "w.json", {**SESSION, "requests": requests})

    assert turns(trace, "recorded_s") == [[0, 11, 12, 16, 30]]
    assert turns(trace, "agent") == [[0, -1, 2, 2, 0]]  # nobody waits for b
    assert turns(trace, "after", "think_s") == [[-1, 0, 0, 2, 3], [0, 9, 10, 2, 12]]
    assert trace.joins.tolist() == [[4, 0]]


def test_several_weka_sessions_have_no_common_clock(tmp_path):
    session = {**SESSION, "requests": [append(5, 640, 20), append(9, 700, 30)]}

    trace = read(tmp_path, "w.jsonl", session, session)

    assert trace.arrival_s is None
    assert turns(trace, "session", "after") == [[0, 0, 1, 1], [-1, 0, -1, 2]]
    assert turns(trace, "prefix_group") == [[0, -1, 0, -1]]


def dynamo(session, received, prompt, hashes, output=10, **context):
    replay = {
        "trace_block_size": 64,
        "input_length": prompt,
        "input_sequence_hashes": hashes,
    }
    request = {"request_id": f"{received}", "request_received_ms": received}
    request |= {"input_tokens": prompt, "output_tokens": output, "total_time_ms": 500.0}
    row = {"event_type": "request_end", "event_time_unix_ms": received + 500}
    if session:
        row["agent_context"] = {"session_id": session, **context}
    return row | {"request": {**request, "replay": replay}}


def test_dynamo_requests_come_after_those_of_their_session(tmp_path):
    tool = {
        "event_type": "tool_end",
        "event_time_unix_ms": 2000,
        "agent_context": {"session_id": "s"},
    }
    rows = [
        dynamo("s", 1000, 130, ["a", "b", "c"]),
        tool,
        dynamo("sub", 2000, 64, ["x"], parent_session_id="s"),
        dynamo("s", 4000, 200, ["a", "b", "d", "e"]),
    ]

    trace = read(tmp_path, "d.jsonl", *rows)

    assert sniffed(tmp_path / "d.jsonl") == "dynamo"
    assert turns(trace, "parent", "prefix_tokens") == [[-1, -1, 0], [0, 0, 140]]
    assert turns(trace, "agent", "after", "think_s") == [
        [0, 1, 0],
        [-1, 0, 1],
        [0, 0.5, 1.5],
    ]
    assert trace.joins.tolist() == [[2, 0]]


def test_dynamo_requests_without_sessions_arrive_by_themselves(tmp_path):
    trace = read(
        tmp_path, "d.jsonl", dynamo("", 1000, 64, ["a"]), dynamo("", 1500, 64, ["a"])
    )

    assert turns(trace, "arrival_s", "prefix_group", "prefix_tokens") == [
        [0, 0.5],
        [0, 0],
        [64, 64],
    ]
    with pytest.raises(InputError, match=r":2: rows with and without agent_context"):
        read(
            tmp_path,
            "d.jsonl",
            dynamo("", 1000, 64, ["a"]),
            dynamo("s", 1500, 64, ["a"]),
        )


def mooncake(request, prompt, **more):
    return {"request_id": request, "input_length": prompt, "output_length": 20, **more}


def test_agentic_mooncake_says_for_whom_requests_wait(tmp_path):
    rows = [
        mooncake("r", 1024, timestamp=5000, hash_ids=[1, 2]),
        mooncake("a", 600, wait_for=["r"], delay=100, hash_ids=[7, 8]),
        mooncake("b", 700, wait_for=["r"], tool_wait_ms=50, hash_ids=[7, 9]),
        mooncake(
            "j",
            1100,
            wait_for=["a", "b"],
            delay=100,
            tool_wait_ms=400,
            hash_ids=[1, 2, 3],
        ),
    ]

    trace = read(tmp_path, "m.jsonl", *rows)

    assert sniffed(tmp_path / "m.jsonl") == "agentic-mooncake"
    assert turns(trace, "arrival_s")[0][0] == 0
    assert turns(trace, "after", "think_s") == [[-1, 0, 0, 1], [0, 0.1, 0.05, 0.5]]
    assert trace.joins.tolist() == [[3, 2]]
    assert turns(trace, "parent", "prefix_tokens") == [
        [-1, -1, 1, 0],
        [0, 0, 512, 1044],
    ]
    with pytest.raises(InputError, match=r":2: waits for z; expected the id"):
        read(tmp_path, "m.jsonl", rows[0], rows[1] | {"wait_for": ["z"]})


def test_mooncake_sessions_without_hashes_count_what_each_turn_adds(tmp_path):
    rows = [
        {
            "session_id": "a",
            "timestamp": 1000,
            "input_length": 100,
            "output_length": 20,
        },
        {"session_id": "b", "timestamp": 2000, "input_length": 50, "output_length": 5},
        {"session_id": "a", "delay": 3000, "input_length": 30, "output_length": 7},
    ]

    trace = read(tmp_path, "m.jsonl", *rows)

    assert sniffed(tmp_path / "m.jsonl") == "mooncake-sessions"
    assert turns(trace, "prompt_tokens", "prefix_tokens") == [
        [100, 50, 150],
        [0, 0, 120],
    ]
    assert turns(trace, "after", "think_s") == [[-1, -1, 0], [0, 0, 3]]
    assert turns(trace, "arrival_s")[0][:2] == [0, 1]
    whole = [row | {"hash_ids": [k]} for k, row in enumerate(rows)]
    assert turns(read(tmp_path, "w.jsonl", *whole), "prompt_tokens") == [[100, 50, 30]]


def test_aiperf_turns_have_texts_of_which_only_the_counts_are_kept(tmp_path):
    said = [
        {"text": "a" * 457, "output_length": 9},
        {"texts": ["a" * 457], "delay": 500, "output_length": 3},
    ]

    trace = read(tmp_path, "t.jsonl", {"session_id": "s", "turns": said})

    assert turns(trace, "prompt_tokens", "prefix_tokens") == [[100, 209], [0, 109]]
    assert turns(trace, "after", "think_s") == [[-1, 0], [0, 0.5]]


def exported(conversation, start_s, end_s, prompt, output=10, **metadata):
    metadata |= {"conversation_id": conversation}
    metadata |= {"request_start_ns": start_s * 1e9, "request_end_ns": end_s * 1e9}
    counts = {"usage_prompt_tokens": prompt, "output_sequence_length": output}
    return {
        "metadata": metadata,
        "metrics": {k: {"value": v, "unit": "tokens"} for k, v in counts.items()},
    }


def test_an_export_of_aiperf_is_read_with_its_conversations(tmp_path):
    rows = [
        exported("c", 0, 1, 9, benchmark_phase="warmup"),
        exported("c", 10, 12, 100),
        exported("c::sa:subagent_1", 13, 14, 40),
        exported("c", 17, 18, 150),
        exported("c", 20, 21, 5, was_cancelled=True),
    ]

    trace = read(tmp_path, "profile_export.jsonl", *rows)

    assert turns(trace, "prompt_tokens", "prefix_tokens") == [
        [100, 40, 150],
        [0, 40, 50],
    ]
    assert turns(trace, "agent", "after", "think_s") == [
        [0, 1, 0],
        [-1, 0, 1],
        [0, 1, 3],
    ]
    assert dict(trace.left_out) == {}
    assert "1 failed, 1 of the warm-up" in str(trace.notes)


def span(conversation, start_s, end_s, prompt):
    return {
        "startTimeUnixNano": str(int(1.7e18 + start_s * 1e9)),
        "endTimeUnixNano": str(int(1.7e18 + end_s * 1e9)),
        "attributes": {
            "gen_ai.conversation.id": conversation,
            "gen_ai.usage.input_tokens": prompt,
            "gen_ai.usage.output_tokens": 10,
        },
    }


def test_spans_of_a_conversation_come_after_the_last_that_had_ended(tmp_path):
    rows = [
        span("x", 0, 4, 100),
        span("x", 5, 7, 130),
        span("x", 6, 8, 140),
        span("y", 6, 8, 9),
    ]

    trace = read(tmp_path, "s.jsonl", *rows, turns=True)

    assert turns(trace, "after", "think_s") == [[-1, 0, 0, -1], [0, 1, 2, 0]]
    assert turns(trace, "parent", "prefix_tokens") == [[-1, 0, 0, -1], [0, 110, 110, 0]]
    assert not read(tmp_path, "s.jsonl", *rows).has_turns


def test_burstgpt_thinks_between_its_answers_and_its_turns(tmp_path):
    header = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,"
    header += "Total tokens,Log Type"
    lines = ["10,a,5,m,90,10,100,c", "20,b,5,m,9,1,10,c", "30,a,5,m,140,10,150,c"]

    trace = read(tmp_path, "b.csv", header, *lines, turns=True)

    assert turns(trace, "after", "think_s") == [[-1, -1, 0], [0, 0, 15]]
    assert turns(trace, "prefix_tokens") == [[0, 0, 100]]


def test_qwen_chats_go_on_with_their_parents(tmp_path):
    def chat(number, parent, at, hashes):
        row = {
            "chat_id": number,
            "parent_chat_id": parent,
            "timestamp": at,
            "type": "text",
        }
        return row | {
            "turn": 1,
            "input_length": 16 * len(hashes),
            "output_length": 8,
            "hash_ids": hashes,
        }

    rows = [
        chat(1, -1, 0.5, [5, 6]),
        chat(2, 1, 3.0, [5, 6, 9]),
        chat(3, 1, 4.0, [5, 7, 6]),
        chat(4, -1, 5.0, [5, 1]),
    ]

    trace = read(tmp_path, "q.jsonl", *rows, turns=True)

    assert turns(trace, "after", "think_s") == [[-1, 0, 0, -1], [0, 2.5, 3.5, 0]]
    assert turns(trace, "parent", "prefix_tokens") == [[-1, 0, 1, -1], [16, 40, 16, 16]]
    assert turns(trace, "session") == [[0, 0, 0, 1]]


def test_mooncake_prompts_that_go_on_with_others_are_sessions(tmp_path):
    def row(at, prompt, hashes):
        return {
            "timestamp": at,
            "input_length": prompt,
            "output_length": 30,
            "hash_ids": hashes,
        }

    rows = [row(0, 700, [1, 2]), row(9000, 1100, [1, 3, 4]), row(9500, 600, [1, 5])]

    trace = read(tmp_path, "m.jsonl", *rows, turns=True)

    assert turns(trace, "session", "parent", "prefix_tokens") == [
        [0, 0, 1],
        [-1, 0, -1],
        [512, 730, 512],
    ]
    assert not trace.has_waits


def test_sharegpt_turns_begin_with_all_that_was_said(tmp_path):
    said = [{"from": k, "value": "a" * 457} for k in ("human", "gpt", "human", "gpt")]

    trace = read(
        tmp_path, "c.json", json.dumps([{"id": "x", "conversations": said}]), turns=True
    )

    assert turns(trace, "prompt_tokens", "prefix_tokens", "after") == [
        [100, 300],
        [0, 200],
        [-1, 0],
    ]


def test_a_csv_with_sessions_becomes_conversations_where_it_is_asked_for(tmp_path):
    lines = [
        "arrival_s,prompt_tokens,output_tokens,session,duration_s",
        "0,40000,10,u,2",
        "5,500,10,u,1",
        "9,520,5,u,1",
    ]

    trace = read(tmp_path, "c.csv", *lines, turns=True)

    assert turns(trace, "after", "think_s") == [[-1, 0, 1], [0, 3, 3]]
    assert turns(trace, "parent", "prefix_tokens") == [
        [-1, -1, 1],
        [0, 0, 510],
    ]  # starts anew
    with pytest.raises(InputError, match="no conversations; expected a column session"):
        read(
            tmp_path,
            "n.csv",
            "arrival_s,prompt_tokens,output_tokens",
            "0,5,6",
            turns=True,
        )


def test_an_agent_waits_for_each_answer_of_others_once():
    session, agent = np.zeros(5, np.int64), np.array([0, 1, 0, 0, 1])
    start_s, end_s = np.array([0.0, 2, 5, 8, 9]), np.array([1.0, 3, 6, 9, 9.5])

    found = waits(session, agent, start_s, end_s)

    assert found.after.tolist() == [-1, 0, 1, 2, 3]
    assert sorted(found.joins.tolist()) == [[2, 0], [4, 1]]
    assert found.think_s.tolist() == [0, 1, 2, 2, 0]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"in": None}, "request 1: in is None; expected a number from 1"),
        ({"t": "x"}, "request 1: t is 'x'; expected a number from 0"),
        ({"out": 0}, "no request was answered"),
    ],
)
def test_wrong_requests_of_a_session_are_refused(tmp_path, changed, said):
    with pytest.raises(InputError, match=said):
        read(tmp_path, "w.json", {**SESSION, "requests": [append(0, 64, 5) | changed]})
