"""Files of texts are counted as ShareGPT's are, whichever keys hold role and text."""

import json
from datetime import datetime

import pytest

from capplan.errors import InputError, TraceWarning
from capplan.workload.readers import read_trace
from capplan.workload.readers.token_counts import estimate

pytestmark = pytest.mark.filterwarnings("ignore::capplan.errors.TraceWarning")


def tokens(*texts):
    return int(sum(estimate(texts)))


@pytest.fixture
def lines(tmp_path):
    def write(*rows, name="chats.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


def said(role, content, **more):
    return {"role": role, "content": content, **more}


CHAT = [
    said("system", "be nice " * 9),
    said("user", "why " * 50),
    said("assistant", "so " * 80),
    said("user", "and " * 30),
    said("assistant", "no " * 20),
]


def counts(trace):
    pairs = zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True)
    return list(pairs)


def test_openai_messages_are_counted_as_sharegpt_is(lines):
    path = lines({"messages": CHAT}, {"messages": CHAT[1:3]})

    first = read_trace(path)
    every = read_trace(path, sharegpt_rule="multiturn")

    texts = [each["content"] for each in CHAT]
    assert counts(first) == [
        (tokens(*texts[:1]) + tokens(texts[1]), tokens(texts[2])),
        (tokens(texts[1]), tokens(texts[2])),
    ]
    assert counts(every)[1] == (sum(map(tokens, texts[:4])), tokens(texts[4]))
    assert every.session.tolist() == every.prefix_group.tolist() == [0, 0, 1]


def test_text_parts_count_and_images_are_said(lines):
    parts = [
        {"type": "text", "text": "what is this? "},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "text", "text": "and that?"},
    ]
    path = lines({"messages": [said("user", parts), said("assistant", "a cat")]})

    with pytest.warns(TraceWarning, match="1 images and other parts without text"):
        trace = read_trace(path)

    assert counts(trace) == [(tokens("what is this? and that?"), tokens("a cat"))]


def test_tools_and_their_calls_are_text_of_the_llm(lines):
    call = {"type": "function", "function": {"name": "find", "arguments": '{"a": 1}'}}
    tools = [{"type": "function", "function": {"name": "find", "parameters": {}}}]
    chat = [
        said("user", "look"),
        said("assistant", None, tool_calls=[call]),
        said("tool", "found " * 40, tool_call_id="x"),
        said("assistant", "here it is", reasoning_content="I think " * 30),
    ]

    trace = read_trace(
        lines({"messages": chat, "tools": tools}), sharegpt_rule="multiturn"
    )

    before = tokens(json.dumps(tools)) + tokens("look")
    called = tokens('find{"a": 1}')
    assert counts(trace) == [
        (before, called),
        (
            before + called + tokens("found " * 40),
            tokens("I think " * 30 + "here it is"),
        ),
    ]


def test_a_batch_without_answers_is_as_long_as_its_limit(lines):
    def asked(number, **body):
        body |= {"model": "m", "messages": CHAT[:4]}
        url = "/v1/chat/completions"
        return {"custom_id": str(number), "method": "POST", "url": url, "body": body}

    path = lines(asked(1, max_tokens=77), asked(2, max_completion_tokens=900))

    with pytest.warns(
        TraceWarning, match="2 answers are not in the file: as long as max_tokens"
    ):
        trace = read_trace(path)

    prompt = sum(tokens(each["content"]) for each in CHAT[:4])
    assert counts(trace) == [(prompt, 77), (prompt, 900)]
    with pytest.raises(InputError, match=r"no request in 1 .*answered"):
        read_trace(lines({"custom_id": "1", "body": {"messages": CHAT[:2]}}))


def test_usage_in_a_batch_output_wins_over_texts(lines):
    def answered(number, created, status=200, **usage):
        message = said("assistant", "so it is")
        body = {"created": created, "usage": usage, "choices": [{"message": message}]}
        response = {"status_code": status, "request_id": "r", "body": body}
        return {
            "id": "b",
            "custom_id": str(number),
            "response": response,
            "error": None,
        }

    path = lines(
        answered(1, 1_780_000_000, prompt_tokens=500, completion_tokens=20),
        answered(2, 1_780_000_060, prompt_tokens=300, completion_tokens=40),
        answered(3, 1_780_000_061, status=429),
    )

    trace = read_trace(path)

    assert counts(trace) == [(500, 20), (300, 40)]
    assert trace.arrival_s.tolist() == [0, 60]


LMSYS = {"conversation_id": "7f", "turn": 2, "language": "English", "redacted": False}


def test_lmsys_chat_has_conversations_without_times(lines):
    path = lines({**LMSYS, "model": "vicuna-13b", "conversation": CHAT[1:]})

    trace = read_trace(path, sharegpt_rule="multiturn")

    assert len(trace) == 2
    assert trace.arrival_s is None
    assert trace.class_names == ("vicuna-13b",)


def test_an_arena_has_one_request_for_each_llm_at_its_time(lines):
    row = {"question_id": "q", "model_a": "x", "model_b": "y", "tstamp": 1.6825e9}
    other = [said("user", "why " * 50), said("assistant", "well " * 10)]
    path = lines(
        {**row, "conversation_a": CHAT[1:3], "conversation_b": other},
        {
            **row,
            "tstamp": 1.6825e9 + 5,
            "conversation_a": other,
            "conversation_b": other,
        },
    )

    trace = read_trace(path)
    turns = read_trace(path, sharegpt_rule="multiturn")

    assert turns.prefix_group.tolist() == turns.session.tolist() == [0, 1, 2, 3]
    assert trace.output_tokens.tolist()[:2] == [
        tokens("so " * 80),
        tokens("well " * 10),
    ]
    assert trace.arrival_s.tolist() == [0, 0, 5, 5]


def wildchat():
    def turn(role, text, second=None):
        stamp = None if second is None else f"2024-05-01T10:00:{second:02}+00:00"
        return said(role, text, timestamp=stamp, turn_identifier=1, toxic=False)

    return {
        "conversation_hash": "c0ffee",
        "model": "gpt-4-0314",
        "timestamp": "2024-05-01T10:00:50+00:00",
        "conversation": [
            turn("user", "why " * 50),
            turn("assistant", "so " * 80, 8),
            turn("user", "and " * 30),
            turn("assistant", "no " * 20, 50),
        ],
        "turn": 2,
        "hashed_ip": "00",
    }


def test_wildchat_has_the_time_of_each_answer(lines):
    trace = read_trace(lines(wildchat()), sharegpt_rule="multiturn")

    assert trace.arrival_s.tolist() == [0, 42]
    assert trace.clock_s == pytest.approx(1_714_557_608)
    assert trace.class_names == ("gpt-4-0314",)


def test_tokens_that_an_answer_tells_win_over_its_text(lines):
    row = wildchat()
    empty = {"prompt_tokens": None, "completion_tokens": None}
    for k, said_ in enumerate(row["conversation"]):
        told = {"prompt_tokens": 70, "completion_tokens": 900} if k == 3 else empty
        said_["usage"] = told  # as WildChat-4.8M has it

    trace = read_trace(lines(row), sharegpt_rule="multiturn")

    assert counts(trace) == [(tokens("why " * 50), tokens("so " * 80)), (70, 900)]


def test_parquet_and_arrays_give_what_lines_give(lines, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [wildchat(), wildchat() | {"model": "gpt-3.5"}]
    for row in rows:
        for said in row["conversation"]:  # WildChat's Parquet has times, not texts
            said["timestamp"] = said["timestamp"] and datetime.fromisoformat(
                said["timestamp"]
            )
    array, table = tmp_path / "chats.json", tmp_path / "chats.parquet"
    array.write_text(json.dumps(rows, default=str))
    parquet.write_table(pyarrow.Table.from_pylist(rows), table)

    one = read_trace(lines(wildchat(), wildchat() | {"model": "gpt-3.5"}))

    for path in (array, table):
        same = read_trace(path)
        assert counts(same) == counts(one)
        assert same.arrival_s.tolist() == one.arrival_s.tolist()
        assert same.class_names == one.class_names


def test_sharegpt_may_have_a_line_for_each_conversation(lines):
    path = lines(
        {"id": "a", "conversations": [{"from": "human", "value": "hi " * 20}]},
        {
            "id": "b",
            "conversations": [
                {"from": "human", "value": "hi " * 20},
                {"from": "gpt", "value": "oh " * 30},
            ],
        },
    )

    assert counts(read_trace(path)) == [(tokens("hi " * 20), tokens("oh " * 30))]


def test_a_stamp_may_be_named(lines):
    rows = [
        {"when": "2026-01-01T00:00:00Z", "messages": CHAT},
        {"when": "2026-01-01T00:00:09Z", "messages": CHAT},
    ]

    trace = read_trace(lines(*rows), columns={"arrival_s": "when"})

    assert trace.arrival_s.tolist() == [0, 9]


@pytest.mark.parametrize(
    ("row", "said_of_it"),
    [
        ({"messages": [{"role": "user"}]}, r"chats\.jsonl:2: not the messages"),
        ({"messages": ["hi"]}, r"chats\.jsonl:2: not the messages"),
        ({"messages": [said("user", 3)]}, r"chats\.jsonl:2: not the messages"),
        ({"messages": [said("user", ["a", 4])]}, r"chats\.jsonl:2: not the messages"),
        ({"messages": [said("user", "a", tool_calls=[1])]}, "not the messages"),
        ({"messages": [{"content": "hi"}]}, r"chats\.jsonl:2: not the messages"),
    ],
)
def test_a_row_that_is_no_conversation_is_refused_with_its_place(
    lines, row, said_of_it
):
    with pytest.raises(InputError, match=said_of_it):
        read_trace(lines({"messages": CHAT}, row))


def test_texts_of_one_file_never_reach_the_trace(lines):
    trace = read_trace(lines({"messages": CHAT}))

    assert "why" not in repr([vars(trace)])


def test_times_of_conversations_that_are_not_read_are_named(lines):
    row = {"messages": CHAT, "metadata": {"ended": "2026-01-01T00:00:00Z"}}

    notes = read_trace(lines(row)).notes

    assert "give --columns arrival_s=metadata.ended" in str(notes)
