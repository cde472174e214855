"""Rows that were not answered, sums of requests, blanks and units of stamps."""

import json

import pytest

from capplan.errors import InputError, TraceWarning
from capplan.workload.readers import READERS, read_trace
from capplan.workload.readers.chunks import iterate_trace
from tests.workload.readers import test_agents as agents

SPEND_LOGS = (  # the columns of LiteLLM's /spend/logs that matter
    "request_id,prompt_tokens,completion_tokens,startTime,model,status\n"
    "a,388,222,2026-09-14 08:00:00.195,qwen3-32b,failure\n"
    "b,228,294,2026-09-14 08:00:00.721,qwen3-32b,success\n"
    "c,,,2026-09-14 08:00:00.771,qwen3-32b,failure\n"
    "d,519,0,2026-09-14 08:00:01.973,qwen3-32b,success\n"
    "e,936,55,2026-09-14 08:00:02.018,qwen3-32b,success\n"
)
USAGE = (  # of OpenAI's usage export
    "start_time,end_time,project_id,num_model_requests,model,input_tokens,"
    "output_tokens\n"
    "1789372800,1789372860,p,1,gpt-4o-mini,434,832\n"
    "1789372860,1789372920,p,35,gpt-4o-mini,7564,1063\n"
)
LEFT_OUT = " rows left out: "
NONE = f"{LEFT_OUT}1 without output tokens"


def hashed(fields):
    """Return two rows of JSON lines, of which one has no output tokens."""
    rows = [{**fields, "timestamp": k, "input_length": 5} for k in (0, 3)]
    return "".join(
        json.dumps({**row, "output_length": k}) + "\n" for k, row in enumerate(rows)
    )


def logged(fields, prompt, output):
    """Return two rows of JSON lines, of which one has no output tokens."""
    return "".join(
        json.dumps({**fields, prompt: 5, output: k}) + "\n" for k in range(2)
    )


UNANSWERED = {
    "weka": json.dumps(
        {
            **agents.SESSION,
            "requests": [agents.append(0, 5, 0), agents.append(0, 5, 1)],
        }
    ),
    "dynamo": "".join(
        json.dumps(agents.dynamo("s", 1, 5, ["a"], output=k)) + "\n" for k in range(2)
    ),
    "agentic-mooncake": hashed({"request_id": "r", "hash_ids": [1]}),
    "mooncake-sessions": hashed({"session_id": "s", "hash_ids": [1], "delay": 1}),
    "aiperf": "".join(
        json.dumps(agents.exported("c", k, k + 1, 5, output=k)) + "\n" for k in range(2)
    ),
    "langfuse": logged(
        {"type": "GENERATION", "startTime": "2026-09-14", "level": "DEFAULT"},
        "promptTokens",
        "completionTokens",
    ),
    "langsmith": logged(
        {"run_type": "llm", "start_time": "2026-09-14"},
        "prompt_tokens",
        "completion_tokens",
    ),
    "litellm": logged(
        {"call_type": "acompletion", "startTime": "2026-09-14"},
        "prompt_tokens",
        "completion_tokens",
    ),
    "bedrock": logged(
        {"schemaType": "x", "operation": "Converse", "modelId": "m"},
        "input.inputTokenCount",
        "output.outputTokenCount",
    ),
    "opentelemetry": logged(
        {"startTimeUnixNano": "1789372800195657000"},
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.output_tokens",
    ),
    "claude-code": logged(
        {"type": "assistant", "timestamp": "2026-09-14", "sessionId": "s"},
        "message.usage.input_tokens",
        "message.usage.output_tokens",
    ),
    "azure": "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2024-05-10 00:00:00+00:00,5,0\n2024-05-10 00:00:03+00:00,5,1\n",
    "burstgpt": "Timestamp,Model,Request tokens,Response tokens,Log Type\n"
    "0,GPT-4,5,0,API log\n3,GPT-4,5,1,API log\n",
    "mooncake": hashed({"hash_ids": [1]}),
    "qwen-bailian": hashed({"chat_id": 1}),
    "ragpulse": hashed({"hash_ids": {}, "session_id": "s"}),
    "csv": "arrival_s,prompt_tokens,output_tokens\n0,5,0\n3,5,1\n",
}


@pytest.fixture
def write(tmp_path):
    def written(text):
        path = tmp_path / "trace"
        path.write_text(text)
        return path

    return written


@pytest.mark.parametrize("name", [name for name in READERS if name != "sharegpt"])
def test_every_reader_leaves_out_and_counts_what_was_not_answered(name, write):
    with pytest.warns(TraceWarning, match=f"1 of 2{NONE}$"):
        trace = read_trace(write(UNANSWERED[name]), reader_name=name)

    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([5], [1])


@pytest.mark.filterwarnings("ignore:.*guessed columns")
def test_requests_that_failed_are_left_out_and_counted(write):
    with pytest.warns(
        TraceWarning, match=f"3 of 5{LEFT_OUT}2 failed, 1 without output tokens"
    ):
        trace = read_trace(write(SPEND_LOGS))

    assert trace.prompt_tokens.tolist() == [228, 936]
    assert trace.output_tokens.tolist() == [294, 55]


def test_a_trace_read_in_chunks_leaves_out_the_same(write):
    rows = "".join(f"{k},5,{k % 3},{500 if k > 8 else 200}\n" for k in range(12))
    path = write("arrival_s,prompt_tokens,output_tokens,status\n" + rows)

    with pytest.warns(
        TraceWarning, match=f"6 of 12{LEFT_OUT}3 failed, 3 without output tokens"
    ):
        whole = read_trace(path)
    with pytest.warns(
        TraceWarning, match=f"6 of 12{LEFT_OUT}3 failed, 3 without output tokens"
    ):
        parts = list(iterate_trace(path, 3))

    assert whole.arrival_s.tolist() == [1, 2, 4, 5, 7, 8]
    assert [x for part in parts for x in part.arrival_s] == whole.arrival_s.tolist()


@pytest.mark.parametrize(
    ("column", "value", "is_kept"),
    [
        ("status", "failure", False),
        ("status", "TIMEOUT", False),
        ("status_code", "503", False),
        ("success", "False", False),
        ("status", "ERR", False),
        ("status", "internal_server_error", False),
        ("status", "no_error", True),
        ("status", "transferred", True),
        ("status", "success", True),
        ("status", "completed", True),
        ("status_code", "200", True),
        ("success", "True", True),
        ("status", "", True),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_a_status_says_decides(column, value, is_kept, write):
    text = f"prompt_tokens,output_tokens,{column}\n5,5,{value}\n6,6,{value}\n7,7,\n"

    assert len(read_trace(write(text))) == (3 if is_kept else 1)


def test_a_line_after_rows_left_out_is_named_as_in_the_file(write):
    path = write("prompt_tokens,output_tokens\n5,0\n5,5\n-1,5\n")

    with (
        pytest.warns(TraceWarning, match="1 of 3"),
        pytest.raises(InputError, match=r":4: prompt_tokens is -1"),
    ):
        read_trace(path)


ODD = {
    "arrival_s": ("inf", "-Infinity", "#N/A", "n.d."),
    "at": ("2026-10-16T08:00:60Z", "2026-02-30T08:00:00Z", "0000-00-00", "9999-12-31"),
    "prompt_tokens": ("-3", "0", "inf", "unknown"),
    "output_tokens": ("-1", "nil", "-Infinity"),
}


@pytest.mark.parametrize(
    ("column", "odd"), [(name, odd) for name in ODD for odd in ODD[name]]
)
@pytest.mark.parametrize("is_json", [False, True])
def test_a_row_of_few_with_an_impossible_value_is_left_out(column, odd, is_json, write):
    time = "at" if column == "at" else "arrival_s"
    stamp = "2026-10-16T08:00:{:02}Z" if time == "at" else "{}"
    rows = [
        {time: stamp.format(k), "prompt_tokens": 5, "output_tokens": 6}
        for k in range(20)
    ]
    rows[7][column] = odd
    lines = (
        map(json.dumps, rows)
        if is_json
        else [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    )
    path = write("\n".join(lines) + "\n")

    with pytest.warns(TraceWarning, match="1 of 20"):
        trace = read_trace(path, columns={"arrival_s": time})

    assert trace.left_out == {f"without a possible {column}": 1}
    assert len(trace) == 19


@pytest.mark.parametrize("odd", ["1.5", "12 000", "2k", "1e20"])
def test_a_number_in_a_form_that_is_not_known_is_refused(odd, write):
    rows = f'5,6\n"{odd}",6\n' + "5,6\n" * 40

    with pytest.raises(InputError, match=f":3: prompt_tokens is {odd}"):
        read_trace(write("prompt_tokens,output_tokens\n" + rows))


def test_all_that_is_wrong_with_a_column_of_many_is_said_at_once(write):
    rows = "5,6\n-3,6\n-7,6\n1.5,6\noops,6\n5,-2\n5,6\n"

    with pytest.raises(InputError) as refused:
        read_trace(write("prompt_tokens,output_tokens\n" + rows))

    said = str(refused.value)
    assert ":3: prompt_tokens is -3; expected a whole number" in said
    assert "; in other rows it is 1.5 and oops" in said
    assert ":7: output_tokens is -2" in said


def test_dates_of_which_the_month_is_not_sure_are_never_left_out(write):
    days = ["05/05/2026"] * 30 + ["06/05/2026"]
    rows = "".join(f"{day} 08:00:00,5,6\n" for day in days)

    path = write("at,prompt_tokens,output_tokens\n" + rows)

    with pytest.raises(InputError, match=":32: at is 06/05/2026"):
        read_trace(path, columns={"arrival_s": "at"})


def test_all_requests_failed_is_refused(write):
    with pytest.raises(InputError, match=r"no request was answered: of 1 rows 1 with"):
        read_trace(write("prompt_tokens,output_tokens\n5,0\n"))


def test_sums_of_requests_are_refused_by_the_name_of_their_column(write):
    with pytest.raises(InputError, match=r":3: num_model_requests is 35; .* sum of"):
        read_trace(write(USAGE))


def test_a_usage_export_of_single_requests_is_read(write):
    with pytest.warns(TraceWarning, match="guessed columns"):
        trace = read_trace(write(USAGE.replace(",35,", ",1,")))

    assert trace.prompt_tokens.tolist() == [434, 7564]


@pytest.mark.parametrize("name", ["azure", "burstgpt", "csv"])
def test_blanks_around_the_names_of_a_header_are_not_of_them(name, write):
    header, rows = UNANSWERED[name].split("\n", 1)
    padded = ",".join(f" {column}  " for column in header.split(","))

    with pytest.warns(TraceWarning, match="1 of 2"):
        trace = read_trace(write(f"{padded}\n{rows}"))

    assert trace.output_tokens.tolist() == [1]


def stamped(stamps):
    row = '{{"timestamp": {}, "input_length": 5, "output_length": 2}}\n'
    return "".join(map(row.format, stamps))


def test_a_mooncake_file_in_seconds_is_refused(write):
    seconds = stamped(k * 2 // 3 for k in range(60))

    with pytest.raises(
        InputError, match=r"timestamp: 1\.51 requests/s if it has seconds, 1,51"
    ):
        read_trace(write(seconds))


def test_a_mooncake_file_that_may_be_in_seconds_is_told(write):
    with pytest.warns(TraceWarning, match="is read as milliseconds: 0.1 req"):
        read_trace(write(stamped(k * 10 for k in range(100))))
    trace = read_trace(write(stamped(k * 700 for k in range(60))))

    assert any("if it has seconds, 1.429 if milli" in note for note in trace.notes)
