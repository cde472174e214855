"""Every trace format is known by what the file holds and read to the same columns."""

import gzip
import json
import re
import warnings

import numpy as np
import pytest

from capplan.errors import InputError, TraceWarning
from capplan.workload.readers import READERS, first_row, read_trace, reader, sniffed
from capplan.workload.readers.agents import AgentFormat
from tests.workload.readers import test_agents as agents

AZURE_2023 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:00:00.2500000,374,44\r\n"
    "2023-11-16 18:00:04.5645791,396,109"  # no newline at the end
)
AZURE_2024 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2024-05-10 00:00:00+00:00,2162,5\n"
    "2024-05-10 00:00:00.017335+00:00,2399,6\n"
)
AZURE_2025 = (
    "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n"
    "2024-10-15T12:00:00.269Z,0,770,491\n"
    "2024-10-15T12:00:05.819Z,3,949,126\n"
)
BURSTGPT_3 = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,"
    "Total tokens,Log Type\n"
    "100.0,a-1,43,GPT-4,906,446,1352,Conversation log\n"
    "151.0,a-2,2,ChatGPT,0,0,0,API log\n"
    "192.0,a-3,8,ChatGPT,36,29,65,API log\n"
)
PLAIN = "arrival_s,prompt_tokens,output_tokens,class\n5.5,10,1,chat\n6.25,20,2,code\n"
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374,44\n4.314579,396,9\n"
ETALON = "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n74,9,83,8.2\n"
LENGTHS = "arrival_s,input_tokens,output_tokens,conv\n,62,398,2\n,17,5,8\n"
MOONCAKE = (
    '{"timestamp": 7, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}\n'
    '{"timestamp": 9, "input_length": 1100, "output_length": 6, '
    '"hash_ids": [1, 2, 3]}\n'
)
QWEN = (
    '{"chat_id": 5, "parent_chat_id": -1, "timestamp": 61.25, "input_length": 20, '
    '"output_length": 132, "type": "text", "turn": 1, "hash_ids": [7, 9]}\n'
    '{"chat_id": 6, "parent_chat_id": 5, "timestamp": 63.5, "input_length": 40, '
    '"output_length": 12, "type": "file", "turn": 2, "hash_ids": [7, 9, 8]}\n'
)
RAGPULSE = (
    '{"timestamp": "82", "input_length": 3112, "output_length": 192, '
    '"hash_ids": {"sys_prompt": [1], "passages_ids": []}, "session_id": "a"}\n'
    '{"timestamp": "93", "input_length": 3000, "output_length": 86, '
    '"hash_ids": {"sys_prompt": [1], "passages_ids": []}, "session_id": "b"}\n\n'
)
SHAREGPT = json.dumps(
    [
        {
            "id": "a",
            "conversations": [
                {"from": "human", "value": "question"},
                {"from": "gpt", "value": "an answer"},
            ],
        }
    ]
)

LANGFUSE = (
    '{"type": "GENERATION", "startTime": "2026-09-14T08:00:00.5Z", "level": "DEFAULT", '
    '"model": "m", "usage": {"input": 30, "output": 4, "unit": "TOKENS"}}\n'
    '{"type": "GENERATION", "startTime": "2026-09-14T08:00:02Z", "level": "DEFAULT", '
    '"model": "m", "usage": {"input": 50, "output": 6, "unit": "TOKENS"}}\n'
)
LANGSMITH = (
    '{"run_type": "llm", "start_time": "2026-09-14T08:00:00.5", "status": "success", '
    '"prompt_tokens": 30, "completion_tokens": 4, "session_id": "p"}\n'
    '{"run_type": "llm", "start_time": "2026-09-14T08:00:02", "status": "success", '
    '"prompt_tokens": 50, "completion_tokens": 6, "session_id": "p"}\n'
)
LITELLM = (
    '{"call_type": "acompletion", "startTime": "2026-09-14T08:00:00.5Z", "model": "m", '
    '"prompt_tokens": 30, "completion_tokens": 4, "status": "success"}\n'
    '{"call_type": "acompletion", "startTime": "2026-09-14T08:00:02Z", "model": "m", '
    '"prompt_tokens": 50, "completion_tokens": 6, "status": "success"}\n'
)


def otlp(start_s, prompt, output, operation="chat", **more):
    """Return a line of OTLP JSON with a span."""
    attributes = {
        "gen_ai.operation.name": {"stringValue": operation},
        "gen_ai.request.model": {"stringValue": "m"},
        "gen_ai.usage.input_tokens": {"intValue": str(prompt)},
        "gen_ai.usage.output_tokens": {"intValue": str(output)},
    }
    span = {
        "traceId": "t",
        "startTimeUnixNano": f"{1_789_372_800_000_000_000 + int(start_s * 1e9)}",
        "attributes": [{"key": k, "value": v} for k, v in attributes.items()],
        **more,
    }
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}) + "\n"


OPENTELEMETRY = otlp(0.5, 30, 4) + otlp(2, 50, 6)


def claude_line(uuid, parent, second, **message):
    """Return a line of Claude Code's log."""
    stamp = f"2026-09-14T08:00:{second:02}.000Z"
    kind = {"type": "assistant" if "usage" in message else "user", "timestamp": stamp}
    return {
        **kind,
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": "s",
        "message": message,
    }


def claude_usage(new, read, written, output):
    return {
        "input_tokens": new,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "output_tokens": output,
    }


FIRST = {"id": "msg_1", "model": "opus", "role": "assistant"}
SECOND = {**FIRST, "id": "msg_2"}
CLAUDE_CODE = "".join(
    json.dumps(line) + "\n"
    for line in [
        {"type": "summary", "summary": "a talk", "leafUuid": "d"},
        claude_line("a", None, 1, role="user", content="look"),
        claude_line("b", "a", 4, **FIRST, usage=claude_usage(3, 0, 500, 2)),
        claude_line("c", "b", 6, **FIRST, usage=claude_usage(3, 0, 500, 90)),
        claude_line("d", "c", 9, role="user", content=[{"type": "tool_result"}]),
        claude_line("e", "d", 12, **SECOND, usage=claude_usage(4, 500, 120, 33)),
    ]
)

BEDROCK = "".join(
    json.dumps(
        {
            **{
                "schemaType": "ModelInvocationLog",
                "timestamp": f"2026-09-14T08:00:{k}",
            },
            **{"operation": "Converse", "modelId": "llama", "input": {}, "output": {}},
        }
        | counts
    )
    + "\n"
    for k, counts in (
        ("00Z", {"errorCode": "ThrottlingException"}),
        ("01Z", {"input": {"inputTokenCount": 7}, "output": {"outputTokenCount": 5}}),
        ("03Z", {"input": {"inputTokenCount": 8}, "output": {"outputTokenCount": 6}}),
    )
)

SAMPLES = {
    "weka": json.dumps({**agents.SESSION, "requests": [agents.append(0, 99, 2)]}),
    "dynamo": json.dumps(agents.dynamo("s", 1000, 64, ["a"])),
    "agentic-mooncake": json.dumps(agents.mooncake("r", 1024, timestamp=5000)),
    "mooncake-sessions": json.dumps(
        {"session_id": "a", "timestamp": 1, "input_length": 9, "output_length": 2}
    ),
    "aiperf": json.dumps(agents.exported("c", 0, 1, 9)),
    "langfuse": LANGFUSE,
    "langsmith": LANGSMITH,
    "litellm": LITELLM,
    "bedrock": BEDROCK,
    "opentelemetry": OPENTELEMETRY,
    "azure": AZURE_2023,
    "burstgpt": BURSTGPT_3,
    "mooncake": MOONCAKE,
    "qwen-bailian": QWEN,
    "ragpulse": RAGPULSE,
    "sharegpt": SHAREGPT,
    "claude-code": CLAUDE_CODE,
    "csv": PLAIN,
}


LINES = (
    *(name for name in READERS if isinstance(reader(name), AgentFormat)),
    "claude-code",
    "mooncake",
    "qwen-bailian",
    "ragpulse",
    "langfuse",
    "langsmith",
    "litellm",
    "bedrock",
    "opentelemetry",
)
"""Formats without a header."""


@pytest.fixture
def write(tmp_path):
    def write_text(text, name="trace"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write_text


def read_quietly(path, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)
        return read_trace(path, **options)


def test_every_reader_has_a_sample_under_these_laws():
    assert set(SAMPLES) == set(READERS)


@pytest.mark.parametrize("name", READERS)
def test_a_format_is_known_by_its_content_and_no_other_claims_it(write, name):
    path = write(SAMPLES[name])
    first = first_row(path)

    claimed = [other for other in READERS if reader(other).knows(first)]

    assert claimed[0] == name
    assert set(claimed[1:]) <= {"csv"}  # any table with columns of token counts
    assert sniffed(path) == name


@pytest.mark.parametrize("name", READERS)
def test_gzip_is_read_by_its_magic_bytes_whatever_the_name(write, name):
    plain = read_quietly(write(SAMPLES[name], "plain"))

    zipped = read_quietly(write(gzip.compress(SAMPLES[name].encode()), "zipped.txt"))

    np.testing.assert_array_equal(zipped.prompt_tokens, plain.prompt_tokens)
    np.testing.assert_array_equal(zipped.output_tokens, plain.output_tokens)


@pytest.mark.parametrize("name", READERS)
def test_a_trace_names_its_source(write, name):
    path = write(SAMPLES[name])

    assert read_quietly(path).source == str(path)


@pytest.mark.parametrize("name", READERS)
def test_a_format_without_requests_is_refused(write, name):
    text = SAMPLES[name]
    empty = "[]" if name == "sharegpt" else text.splitlines()[0] + "\n"
    if name in LINES:
        empty = "\n"

    with pytest.raises(InputError, match=r"no request|empty"):
        read_quietly(write(empty), reader_name=name)


def test_azure_2023_with_seven_digits_and_crlf(write):
    trace = read_trace(write(AZURE_2023))

    np.testing.assert_allclose(trace.arrival_s, [0, 4.3145791], rtol=0, atol=1e-9)
    assert trace.prompt_tokens.tolist() == [374, 396]
    assert trace.output_tokens.tolist() == [44, 109]


def test_azure_2024_with_offsets_and_a_missing_fraction(write):
    trace = read_trace(write(AZURE_2024))

    np.testing.assert_allclose(trace.arrival_s, [0, 0.017335], rtol=0, atol=1e-9)


def test_azure_2025_says_what_it_does_with_images(write):
    with pytest.warns(TraceWarning, match="3 images in 1 requests"):
        trace = read_trace(write(AZURE_2025))

    np.testing.assert_allclose(trace.arrival_s, [0, 5.55], rtol=0, atol=1e-9)
    assert "3 images" in trace.notes[0]


def test_azure_requests_without_output_are_counted_and_left_out(write):
    text = AZURE_2024 + "2024-05-10 00:00:01+00:00,50,0\n"

    with pytest.warns(TraceWarning, match="1 of 3 rows left out: 1 without output"):
        trace = read_trace(write(text))

    assert len(trace) == 2


def test_burstgpt_failures_are_counted_and_left_out(write):
    with pytest.warns(TraceWarning, match="1 of 3 rows left out"):
        trace = read_trace(write(BURSTGPT_3))

    assert trace.arrival_s.tolist() == [0, 92]
    assert trace.prompt_tokens.tolist() == [906, 36]
    assert trace.class_names == ("API log", "Conversation log")
    assert trace.request_class.tolist() == [1, 0]


def test_plain_csv_keeps_its_clock_and_classes(write):
    trace = read_trace(write(PLAIN))

    assert trace.arrival_s.tolist() == [5.5, 6.25]
    assert [trace.class_names[i] for i in trace.request_class] == ["chat", "code"]


def test_plain_csv_with_stamps_since_1970_starts_at_zero(write):
    text = "arrival_s,prompt_tokens,output_tokens\n1700000000,1,1\n1700000002.5,1,1\n"

    trace = read_trace(write(text))

    assert trace.arrival_s.tolist() == [0, 2.5]
    assert "since 1970" in trace.notes[0]


@pytest.mark.parametrize(
    ("text", "prompt", "output", "arrival"),
    [
        (VIDUR, [374, 396], [44, 9], [0.0, 4.314579]),
        (ETALON, [74], [9], None),
        (LENGTHS, [62, 17], [398, 5], None),
    ],
    ids=["vidur", "etalon", "lengths"],
)
def test_names_that_other_tools_use(write, text, prompt, output, arrival):
    trace = read_quietly(write(text))

    assert trace.prompt_tokens.tolist() == prompt
    assert trace.output_tokens.tolist() == output
    assert (trace.arrival_s is None) == (arrival is None)
    assert arrival is None or trace.arrival_s.tolist() == arrival


@pytest.mark.parametrize(
    "text",
    [
        "arrival_s, prompt_tokens, output_tokens\n1, 5, 6\n",
        '"arrival_s","prompt_tokens","output_tokens"\n"1","5","6"\n',
        "\n\narrival_s,prompt_tokens,output_tokens\r\n1,5,6",
    ],
    ids=["spaces", "quotes", "blank lines"],
)
def test_a_csv_as_spreadsheets_write_them(write, text):
    trace = read_trace(write(text))

    assert trace.arrival_s.tolist() == [1]
    assert (trace.prompt_tokens[0], trace.output_tokens[0]) == (5, 6)


def test_every_digit_of_an_arrival_is_read(write):
    arrivals = np.cumsum(np.random.default_rng(1).exponential(0.1, 500)).tolist()
    rows = "".join(f"{arrival!r},5,5\n" for arrival in arrivals)

    trace = read_trace(write("arrival_s,prompt_tokens,output_tokens\n" + rows))

    assert trace.arrival_s.tolist() == arrivals


def test_a_limit_of_the_answer_is_a_column(write):
    head = "prompt_tokens,output_tokens,max_new_tokens\n"

    assert read_trace(write(head + "9,5,64\n7,5,0\n")).max_new_tokens.tolist() == [
        64,
        0,
    ]
    expected = ":3: max_new_tokens is 4; expected at least the tokens of the output"
    with pytest.raises(InputError, match=expected):
        read_trace(write(head + "9,5,64\n7,5,4\n"))


def test_a_prefix_given_in_a_csv_is_read(write):
    text = "prompt_tokens,output_tokens,prefix_group,prefix_tokens\n9,1,4,8\n7,1,-1,0\n"

    trace = read_trace(write(text))

    assert trace.prefix_group.tolist() == [4, -1]
    assert trace.prefix_tokens.tolist() == [8, 0]


@pytest.mark.parametrize(
    ("text", "sessions"),
    [
        ("u1\nu2\nu1\n", [0, 1, 0]),
        ("7\n7\n3\n", [1, 1, 0]),  # numbers are names too
        ('u1\n""\n-1\n', [0, -1, -1]),  # not known
    ],
)
def test_sessions_of_a_csv_are_numbered(write, text, sessions):
    rows = "".join(f"9,1,{cell}\n" for cell in text.splitlines())

    trace = read_trace(write("prompt_tokens,output_tokens,session_id\n" + rows))

    assert trace.session.tolist() == sessions


@pytest.mark.parametrize(
    ("text", "sessions"),
    [
        (BURSTGPT_3.replace("a-3", "a-1"), [0, 0]),
        (RAGPULSE, [0, 1]),
        (RAGPULSE.replace(', "session_id": "b"', ""), [0, -1]),
        (QWEN, [0, 0]),  # a chat and the one that it goes on from
        (QWEN.replace('"parent_chat_id": 5', '"parent_chat_id": 2'), [0, 1]),
        (MOONCAKE, [-1, -1]),
    ],
)
def test_sessions_are_read_where_a_format_names_them(write, text, sessions):
    assert read_quietly(write(text)).session.tolist() == sessions


def test_qwen_bailian_shares_blocks_of_sixteen(write):
    trace = read_trace(write(QWEN))

    assert trace.arrival_s.tolist() == [0, 2.25]
    assert trace.prefix_group.tolist() == [0, 0]
    assert trace.prefix_tokens.tolist() == [20, 32]
    assert [trace.class_names[i] for i in trace.request_class] == ["text", "file"]


def test_ragpulse_has_its_seconds_as_text_and_a_blank_line(write):
    trace = read_trace(write(RAGPULSE))

    assert trace.arrival_s.tolist() == [0, 11]
    assert trace.prompt_tokens.tolist() == [3112, 3000]


def test_block_hashes_may_be_text(write):
    trace = read_trace(write(MOONCAKE.replace("[1, 2", '["a7", "b9"')))

    assert trace.prefix_tokens.tolist() == [600, 1024]


def test_a_byte_order_mark_is_no_part_of_the_first_name(write):
    trace = read_trace(write(b"\xef\xbb\xbf" + VIDUR.encode()))

    assert trace.prompt_tokens.tolist() == [374, 396]


@pytest.mark.parametrize(
    "name", [name for name in READERS if READERS[name] == "formats"]
)
def test_arrivals_out_of_order_are_sorted_with_a_warning(write, name):
    lines = SAMPLES[name].splitlines()
    failed = (",0,0,", "errorCode")
    lines = [line for line in lines if not any(mark in line for mark in failed)]
    first = lines[:1] if name not in LINES else []
    rows = lines[len(first) :]
    straight = read_quietly(write("\n".join([*first, *rows]), "straight"))

    with pytest.warns(TraceWarning, match="sorted by arrival"):
        turned = read_trace(write("\n".join([*first, *rows[::-1]]), "turned"))

    np.testing.assert_array_equal(turned.arrival_s, straight.arrival_s)
    np.testing.assert_array_equal(turned.prompt_tokens, straight.prompt_tokens)
    assert any("sorted" in note for note in turned.notes)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("0,5,5\n1,-3,5\n", "3: prompt_tokens is -3; expected a whole number from 1"),
        ("0,5,5\n1,5,-2\n", "3: output_tokens is -2; expected a whole number from 1"),
        ("0,5,5\n1,5,many\n", "3: output_tokens is many; expected a whole number"),
        ("0,5,5\n1,nan,5\n", "3: prompt_tokens is nan; expected a whole number"),
        ("0,5,5\n1,inf,5\n", "3: prompt_tokens is inf; expected a whole number"),
        ("0,5,5\n1,5.5,5\n", "3: prompt_tokens is 5.5; expected a whole number"),
        ("0,5,5\n1,1e12,5\n", "3: prompt_tokens is 1e12; expected a whole number"),
        ("0,5,5\n\n\n1,-3,5\n", "5: prompt_tokens is -3"),
        ("0,5,5\n,5,5\n", "3: arrival_s is empty; expected seconds"),
        ("0,5,5\nnoon,5,5\n", "3: arrival_s is noon; expected seconds"),
        ("0,5,5\nnan,5,5\n", "3: arrival_s is nan; expected seconds"),
        ("0,5,5\n1,5,5,5\n", "3: 4 fields; expected 3"),
        ("0,5,5\n1,5\n", "3: output_tokens is empty"),
        ("True,5,5\nFalse,5,5\n", "2: arrival_s is True; expected seconds"),
    ],
)
def test_a_wrong_value_is_named_with_its_line(write, rows, message):
    path = write("arrival_s,prompt_tokens,output_tokens\n" + rows)

    with pytest.raises(InputError, match=re.escape(f"{path}:{message}")):
        read_trace(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (AZURE_2023 + "\r\nsoon,5,5", ":4: TIMESTAMP is soon; expected a date"),
        (AZURE_2023 + "\r\n2023-11-16 19:00:00,0,5", ":4: ContextTokens is 0"),
        (BURSTGPT_3.replace("906", "-1"), ":2: Request tokens is -1; expected"),
        (MOONCAKE + "oops\n", ":3: not JSON"),
        (MOONCAKE.replace("1100", "-2"), ":2: input_length is -2; expected"),
        (
            MOONCAKE.replace(" 9,", ' "now",'),
            ":2: timestamp is now; expected milliseconds",
        ),
        (MOONCAKE.replace("[1, 2]", "[1.5]"), ":1: hash_ids is [1.5]; expected"),
        (MOONCAKE + "[]\n", ":3: no object; expected a request"),
        (
            MOONCAKE + '{"input_length": 5, "output_length": 5}\n',
            ":3: timestamp is empty; expected milliseconds",
        ),
        (PLAIN + "7,1,1,\n", ":4: class is empty; expected the name of a class"),
        (
            PLAIN.replace("class", "prompt_tokens"),
            ":1: column prompt_tokens appears",
        ),
        (PLAIN.replace("class", "input_tokens"), "both prompt_tokens and input_tok"),
        (PLAIN + "7,1,1," + "x" * 5_000_000, ":4: field larger than field limit"),
        (PLAIN + "7,1,1," + "x" * 500, ":4: class is xxxxx"),
        (PLAIN + '7,"1' + "0" * 5_000_000, "field larger than field limit"),
        ("prompt_tokens,output_tokens," + "x" * 5_000_000, ":1: field larger than"),
        (MOONCAKE + "[" * 100_000, ":3: not JSON: nested too deeply"),
        (MOONCAKE.replace("[1, 2]", "[" * 100_000), ":1: not JSON: nested too deeply"),
        (MOONCAKE.replace("[1, 2]", "[" * 900 + "]" * 900), ":1: hash_ids is [[[[["),
        (MOONCAKE.replace(" 9,", f" {10**400},"), ":2: timestamp is 1000"),
        ('[{"conversations": ' + "[" * 100_000, "byte 0: nested too deeply"),
        (
            '[{"conversations": ' + "[" * 5_000 + "]" * 5_000 + "}]",
            "item 1: not the messages of a conversation",
        ),
        (
            "a,b\n1,2\n",
            ":1: no column prompt_tokens; no column output_tokens; the file has a, b",
        ),
        ("", "the file is empty"),
        (b"prompt_tokens,output_tokens,class\n1,1,\xff\n", "is not UTF-8"),
        (
            gzip.compress(PLAIN.encode(), mtime=0)[:-12],
            "gzip data are damaged or cut off",
        ),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(write, text, message):
    path = write(text)

    with pytest.raises(InputError) as caught:
        read_quietly(path)

    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_trace(tmp_path / "nowhere.csv")
    with pytest.raises(InputError, match="is a folder"):
        read_trace(tmp_path)


def test_unknown_format_names_the_known_ones(write):
    with pytest.raises(InputError, match="azure, burstgpt"):
        read_trace(write(PLAIN), reader_name="parquet")


def test_text_in_utf_16_is_refused_by_that_name(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_bytes(PLAIN.encode("utf-16"))

    with pytest.raises(InputError, match=r"trace\.csv: is text in UTF-16; expected"):
        read_trace(path)


def test_an_answer_of_claude_code_counts_once_when_it_was_asked(write):
    trace = read_quietly(write(CLAUDE_CODE))

    assert trace.prompt_tokens.tolist() == [503, 624]
    assert trace.output_tokens.tolist() == [90, 33]
    assert trace.arrival_s.tolist() == [0, 8]  # of the lines that were answered
    assert trace.session.tolist() == trace.prefix_group.tolist() == [0, 0]
    assert trace.prefix_tokens.tolist() == [0, 500]
    assert trace.class_names == ("opus",)


def test_logs_of_claude_code_put_together_count_no_answer_twice(write):
    trace = read_quietly(write(CLAUDE_CODE * 2))

    assert trace.output_tokens.tolist() == [90, 33]
