"""What gateways and observability tools export is read as they mean it.

Names are those of the tools' own sources or documentation; the rows are made up.
"""

import json
import math
import shutil
import subprocess
import sys
import warnings

import pytest

from capplan.errors import InputError, TraceWarning
from capplan.workload.arrivals import no_times
from capplan.workload.described import described
from capplan.workload.readers import read_trace, sniffed

AT = "2026-09-14T08:00:0{}Z"


@pytest.fixture
def read(tmp_path):
    """Return a function that writes rows as JSON lines, or a text, and reads them."""

    def written(rows, **options):
        path = tmp_path / "log"
        is_text = isinstance(rows, str)
        path.write_text(rows if is_text else "\n".join(map(json.dumps, rows)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TraceWarning)
            return read_trace(path, **options)

    return written


def lengths(trace):
    return list(
        zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True)
    )


def csv_text(rows):
    lines = [",".join(rows[0])]
    lines += [",".join(str(value) for value in row.values()) for row in rows]
    return "\n".join(lines) + "\n"


# Pages of an API


@pytest.mark.parametrize(
    ("around", "said"),
    [
        ({"page": 1, "page_size": 2, "total_pages": 30}, "is page 1 of 30: the rest"),
        ({"meta": {"page": 2, "totalPages": 400}}, "is page 2 of 400: the rest"),
        (
            {"result_info": {"page": 1, "per_page": 9, "total_count": 19}},
            "is page 1 of 3: the rest",
        ),
        ({"result_info": {"page": 2, "total_pages": 4}}, "is page 2 of 4: the rest"),
        ({"meta": {"page": {"after": "x"}}}, "is a page of several: the rest"),
        ({"has_more": True}, "is a page of several: the rest"),
        ({"page": 1, "total_pages": 1, "has_more": False}, None),
        ({"page": "x" * 99, "total_pages": 30}, None),
        ({"a.b": 1, "a": {"b": 2}, "page": 1, "total_pages": 30}, None),
    ],
)
def test_a_page_of_an_api_is_named_as_one(read, around, said):
    rows = [{"created_at": AT.format(1), "prompt_tokens": 5, "completion_tokens": 6}]

    trace = read(json.dumps({"data": rows, **around}))

    assert bool(said) == (f"; {said}" in described(trace))
    notes = trace.notes
    assert [note.partition(" is not")[0] for note in notes if " page " in note] == (
        [said] if said else []
    )


def test_all_pages_in_one_file_are_no_page(read):
    row = {"created_at": AT.format(1), "prompt_tokens": 5, "completion_tokens": 6}
    pages = [{"data": [row], "page": k, "total_pages": 2} for k in (1, 2)]

    trace = read(pages)

    assert len(trace) == 2
    assert not any(" page " in note for note in trace.notes)


def test_spans_of_jaeger_are_read(read):
    def tags(**of):
        pairs = {key.replace("__", "."): value for key, value in of.items()}
        return [{"key": k, "type": "int64", "value": v} for k, v in pairs.items()]

    counts = {"gen_ai__usage__input_tokens": 742, "gen_ai__usage__output_tokens": 26}
    spans = [
        {"operationName": "POST", "startTime": 1789372800_000000, "tags": tags(http=1)},
        {"startTime": 1789372801_500000, "duration": 7, "tags": tags(**counts)},
        {"startTime": 1789372801_500000, "tags": tags(**counts, error=True)},
        {"startTime": 1789372803_500000, "tags": tags(**counts)},
    ]
    data = [{"traceID": "a", "spans": spans, "processes": {"p": {"tags": []}}}]

    trace = read(json.dumps({"data": data, "total": 0, "errors": None}))

    assert lengths(trace) == [(742, 26)] * 2
    assert trace.arrival_s.tolist() == [0, 2]
    assert trace.left_out == {"without token counts": 1, "failed": 1}


def test_the_typed_values_of_mongodb_are_values(read):
    row = {"createdAt": {"$date": {"$numberLong": "1789372800313"}}}
    row["usage"] = {"prompt_tokens": {"$numberInt": "742"}, "completion_tokens": 26}

    assert lengths(read([row])) == [(742, 26)]


# Langfuse


def observation(second, kind="GENERATION", **more):
    return {
        "id": f"o{second}",
        "type": kind,
        "startTime": AT.format(second),
        "endTime": AT.format(9),
        "createdAt": AT.format(9),
        "level": "DEFAULT",
        "model": "qwen3-32b",
        "input": {"messages": []},
        "promptTokens": 100 + second,
        "completionTokens": 10 if kind == "GENERATION" else 0,
        "usage": {"input": 100 + second, "output": 10, "unit": "TOKENS"},
        "usageDetails": {"input": 60, "input_cached_tokens": 40 + second, "output": 10},
        **more,
    }


def test_generations_of_langfuse_are_requests_and_other_observations_are_not(read):
    rows = [
        observation(1, kind="SPAN"),
        observation(2),
        observation(3, level="ERROR"),
        observation(4, kind="TOOL"),
        observation(5),
    ]

    trace = read(json.dumps({"data": rows, "meta": {"page": 1}}))

    # ``usage.input`` sums all details of the input; ``usageDetails.input`` is a part.
    assert lengths(trace) == [(102, 10), (105, 10)]
    assert trace.arrival_s.tolist() == [0, 3]
    assert trace.left_out == {"of kind span": 1, "of kind tool": 1, "failed": 1}


def test_a_trace_of_langfuse_holds_its_observations(read):
    trace = read(json.dumps({"id": "t", "observations": [observation(1)]}))

    assert lengths(trace) == [(101, 10)]


def test_the_export_of_langfuses_table_is_read(read):
    row = {
        "id": "o1",
        "type": "GENERATION",
        "startTime": "2026-09-14T08:00:01.000Z",
        "level": "DEFAULT",
        "inputUsage": 100,
        "outputUsage": 7,
        "totalUsage": 107,
    }
    span = {**row, "type": "SPAN", "inputUsage": "", "outputUsage": ""}

    trace = read(csv_text([row, span]))

    assert lengths(trace) == [(100, 7)]
    assert trace.left_out == {"of kind span": 1}


# LangSmith


def test_runs_of_langsmith_that_sum_their_children_are_not_requests(read):
    run = {"start_time": "2026-09-14T08:00:01", "status": "success", "error": None}
    run |= {"prompt_tokens": 100, "completion_tokens": 10, "session_id": "project"}
    rows = [
        {**run, "run_type": "chain", "prompt_tokens": 200, "completion_tokens": 20},
        {**run, "run_type": "llm"},
        {**run, "run_type": "llm", "status": "error", "error": "RateLimitError()"},
        {**run, "run_type": "llm"},
    ]

    trace = read(json.dumps({"runs": rows, "cursors": {"next": None}}))

    assert lengths(trace) == [(100, 10)] * 2
    assert trace.left_out == {"of kind chain": 1, "failed": 1}
    assert trace.session.tolist() == [-1, -1]  # session_id is the project


def test_runs_of_langsmith_in_milliseconds_are_told_by_their_size(read):
    run = {"run_type": "llm", "prompt_tokens": 100, "completion_tokens": 10}

    trace = read([{**run, "start_time": 1_789_372_800_000 + k} for k in (0, 500)])

    assert trace.arrival_s.tolist() == [0, 0.5]


# LiteLLM


def test_what_litellm_answers_from_its_cache_is_no_request_of_the_llm(read):
    row = {"call_type": "acompletion", "startTime": AT.format(1), "status": "success"}
    row |= {"prompt_tokens": 9, "completion_tokens": 5, "cache_hit": "False"}

    trace = read([row, {**row, "cache_hit": "True"}, {**row, "cache_hit": "None"}])

    assert len(trace) == 2
    assert trace.left_out == {"answered from a cache": 1}


def test_a_day_of_litellm_is_refused_as_a_sum(read):
    row = {"date": "2026-09-14", "api_requests": 7, "prompt_tokens": 5}

    with pytest.raises(InputError, match=r"api_requests is 7; .* a sum of requests"):
        read([{**row, "completion_tokens": 5}])


# OpenTelemetry


def span(second, **attributes):
    listed = [
        {"key": name.replace("__", "."), "value": {kind: value}}
        for name, value in attributes.items()
        for kind in ["intValue" if value.isdigit() else "stringValue"]
    ]
    start = f"{1_789_372_800 + second}000000000"
    return {"startTimeUnixNano": start, "attributes": listed, "status": {}}


def otlp(*spans):
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]})


def test_spans_of_agents_tools_and_errors_are_not_requests(read):
    usage = {"gen_ai__usage__input_tokens": "50", "gen_ai__usage__output_tokens": "5"}
    spans = [
        span(0, http__request__method="POST"),
        span(1, gen_ai__operation__name="invoke_agent", **usage),
        span(2, gen_ai__operation__name="chat", **usage),
        span(3, gen_ai__operation__name="execute_tool"),
        span(4, gen_ai__operation__name="chat", error__type="timeout", **usage),
        {**span(5, gen_ai__operation__name="chat", **usage), "status": {"code": 2}},
        span(6, gen_ai__operation__name="chat", **usage),
    ]

    trace = read(otlp(*spans))

    assert trace.arrival_s.tolist() == [0, 4]
    assert trace.left_out == {
        "of kind invoke_agent": 1,
        "of kind execute_tool": 1,
        "failed": 2,
        "without token counts": 1,
    }


def test_the_old_names_of_opentelemetry_are_read(read):
    old = {"gen_ai__usage__prompt_tokens": "50"}
    old |= {"gen_ai__usage__completion_tokens": "5"}

    assert lengths(read(otlp(span(1, **old)))) == [(50, 5)]


def test_a_flat_table_of_spans_is_read_and_cached_tokens_are_not_added_twice(read):
    text = (
        "start_time,gen_ai.usage.input_tokens,gen_ai.usage.output_tokens,"
        "gen_ai.usage.cache_read_input_tokens,gen_ai.request.model\n"
        "2026-09-14T08:00:01Z,50,5,40,qwen\n"
    )

    trace = read(text)

    assert lengths(trace) == [(50, 5)]
    assert trace.class_names == ("qwen",)


# Helicone, OpenRouter, Bedrock, Envoy, APIs


def test_requests_of_helicone_are_read(read):
    row = {"request_created_at": AT.format(1), "response_created_at": AT.format(2)}
    row |= {"response_status": 200, "request_model": "m", "total_tokens": 12}
    row |= {"prompt_tokens": 9, "completion_tokens": 3}

    trace = read(json.dumps({"data": [row], "error": None}))
    left = read([row, {**row, "response_status": 429}, {**row, "response_status": -3}])

    assert lengths(trace) == [(9, 3)]
    assert (len(left), left.left_out) == (1, {"failed": 2})


def test_tokens_of_openrouter_are_those_of_the_models_own_tokenizer(read):
    row = {"created_at": "2024-07-15T23:33:19.433273+00:00", "model": "m"}
    row |= {"tokens_prompt": 10, "tokens_completion": 25, "native_tokens_reasoning": 5}
    row |= {"native_tokens_prompt": 12, "native_tokens_completion": 31}

    assert lengths(read([row])) == [(12, 31)]
    assert lengths(read(csv_text([row]))) == [(12, 31)]


def test_invocations_of_bedrock_are_read_with_the_tokens_of_its_cache(read):
    row = {
        "schemaType": "ModelInvocationLog",
        "timestamp": AT.format(1),
        "operation": "Converse",
        "modelId": "m",
        "input": {"inputTokenCount": 35, "cacheReadInputTokenCount": 100},
        "output": {
            "outputTokenCount": 44,
            "outputBodyJson": {"usage": {"inputTokens": 35, "outputTokens": 44}},
        },
    }
    failed = {**row, "errorCode": "ThrottlingException", "output": {}}

    trace = read([row, failed, row])

    assert lengths(trace) == [(135, 44)] * 2
    assert trace.left_out == {"failed": 1}
    assert any(
        "prompt_tokens are input.inputTokenCount + input" in n for n in trace.notes
    )


def test_access_logs_of_envoys_ai_gateway_are_read(read):
    row = {"start_time": AT.format(1), "response_code": 200, "duration": 1526}
    row |= {"genai_model_name": "m", "genai_tokens_total": 22, "method": "POST"}
    row |= {"genai_tokens_input": 15, "genai_tokens_output": 7}
    tool = {**row, "genai_tokens_input": None, "genai_tokens_output": None}
    other = {"start_time": AT.format(1), "response_code": "200"}
    other |= {"gen_ai.usage.input_tokens": "15", "gen_ai.usage.output_tokens": "7"}

    trace = read([row, tool, {**row, "response_code": 503}])

    assert lengths(trace) == [(15, 7)] == lengths(read([other]))
    assert trace.left_out == {"without token counts": 1, "failed": 1}


def test_anthropics_input_tokens_leave_out_cached_ones_and_openais_do_not(
    read,
):
    anthropic = {"input_tokens": 3, "output_tokens": 5, "cache_read_input_tokens": 90}
    anthropic["cache_creation_input_tokens"] = 7
    openai = {"prompt_tokens": 100, "completion_tokens": 5}
    openai["prompt_tokens_details"] = {"cached_tokens": 90}
    at = {"created_at": AT.format(1)}

    assert lengths(read([{**at, "usage": anthropic}])) == [(100, 5)]
    assert lengths(read([{**at, "usage": openai}])) == [(100, 5)]


# What is not known


def test_all_that_is_wrong_with_a_file_is_said_at_once_with_a_command(read):
    row = {"ts": 195, "created": 7, "tokens_in": 5, "n_gen": 2, "cost": 1}

    with pytest.raises(InputError) as caught:
        read([row])

    text = str(caught.value)
    assert "no column output_tokens" in text
    assert "both ts and created may be arrival_s" in text
    assert "the file has ts, created, tokens_in, n_gen, cost" in text
    said = "--columns arrival_s=ts,prompt_tokens=tokens_in,output_tokens=n_gen"
    assert said in text


def test_names_that_may_be_meant_are_proposed_and_the_proposal_works(read):
    text = "when,prompt,reply out,cost\n2026-09-14T08:00:01Z,5,6,1\n"

    with pytest.raises(InputError) as caught:
        read(text)
    said = str(caught.value).rpartition("--columns ")[2]
    columns = dict(part.split("=") for part in said.strip("'").split(","))

    assert lengths(read(text, columns=columns)) == [(5, 6)]


def test_a_text_that_is_no_table_is_named(read):
    with pytest.raises(InputError, match="this is no table"):
        read("a line of a log\nanother\n")


def test_wrong_values_of_several_columns_are_said_at_once(read):
    text = "arrival_s,prompt_tokens,output_tokens\n0,5,5\nnoon,-3,5\n2,5,many\n"

    with pytest.raises(InputError) as caught:
        read(text)

    assert ":3: arrival_s is noon" in str(caught.value)
    assert ":3: prompt_tokens is -3" in str(caught.value)
    assert ":4: output_tokens is many" in str(caught.value)


def test_a_path_may_be_said_with_brackets(read):
    row = {"ts_ms": 5, "attributes": {"in.n": 3, "out.n": 4}}
    said = {"prompt_tokens": 'attributes["in.n"]', "output_tokens": "attributes.out.n"}

    assert lengths(read([row], columns=said)) == [(3, 4)]


@pytest.mark.parametrize(
    ("rows", "hint"),
    [
        ([{"request_throughput": 1, "mean_tpot_ms": 9}], "capplan fit --from"),
        ([{"usage_date_utc": "2026-09-14", "usage_output_tokens": 5}], "a sum"),
        ([{"id": "t", "htmlPath": "/x", "totalCost": 1}], "observations"),
    ],
)
def test_a_file_of_a_tool_that_has_no_requests_is_named(rows, hint, read):
    with pytest.raises(InputError, match=hint):
        read(rows)


def test_sniffing_names_the_tool(tmp_path):
    path = tmp_path / "log"
    path.write_text(otlp(span(1, http__request__method="GET")))

    assert sniffed(path) == "opentelemetry"


@pytest.mark.parametrize(
    "stamps",
    [
        ["14/Sep/2026:08:00:00 +0000", "14/Sep/2026:10:00:01 +0200"],
        ["[14/Sep/2026:08:00:00 +0000]", "[14/Sep/2026:08:00:01 +0000]"],
        ["9/14/2026 8:00:00", "9/14/2026 8:00:01"],
        ["09/11/2026 08:00:00 PM", "09/14/2026 08:00:00 AM"],
        ["11/09/2026, 08:00:00", "14/09/2026, 08:00:00"],
        ["01.02.2026 08:00:00.0", "01.02.2026 08:00:01.5"],
        ["10/16/2026, 8:00:02.204 AM", "10/16/2026, 8:00:03.204 AM"],
        ["2026-10-16, 8:00:02.204 AM", "2026-10-16, 8:00:03.204 AM"],
        ["2026-10-16 08:00:02:204", "2026-10-16 08:00:03:204"],
        ["Oct 16, 2026 @ 08:00:02.204", "Oct 16, 2026 @ 08:00:03.204"],
        ["Fri, 16 Oct 2026 08:00:02 GMT", "Fri, 16 Oct 2026 08:00:03 GMT"],
        ["Fri Oct 16 08:00:02 UTC 2026", "Fri Oct 16 08:00:03 UTC 2026"],
    ],
)
@pytest.mark.parametrize("name", ["timestamp", "time_local", "time"])
def test_dates_of_servers_and_spreadsheets_are_read(read, stamps, name):
    rows = [{name: at, "prompt_tokens": 5, "output_tokens": 5} for at in stamps]
    apart_s = {"09/11": 60 * 3600, "11/09": 72 * 3600, "01.02": 1.5}

    trace = read(rows)

    assert trace.arrival_s.tolist() == [0, apart_s.get(stamps[0][:5], 1)]


@pytest.mark.parametrize(
    "stamp",
    [
        "2026-10-16 08:00:02 CEST",
        "2026-10-16T24:00:00Z",
        "0000-00-00 00:00:00",
    ],
)
@pytest.mark.parametrize("further", ["2026-10-16T08:00:02Z", None])
def test_a_first_date_of_a_wrong_form_is_refused_by_its_value(read, stamp, further):
    rows = [
        {"timestamp": at, "input_tokens": 5, "output_tokens": 6}
        for at in (stamp, further or stamp)
    ]

    with pytest.raises(InputError, match=f"timestamp is {stamp}; .* a date such as"):
        read(rows)


def test_dates_whose_month_is_not_sure_are_refused_with_the_command(read, tmp_path):
    rows = [{"time": f"0{k}/05/2026 08:00:00"} for k in (9, 8)]
    text = csv_text([row | {"prompt_tokens": 5, "output_tokens": 5} for row in rows])

    with pytest.raises(
        InputError, match=r"is 09/05/2026 08:00:00; .* the month"
    ) as said:
        read(text)
    command = str(said.value).partition("stands first: ")[2]
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)

    trace = read((tmp_path / "new.csv").read_text())
    assert trace.arrival_s.tolist() == [0, 31 * 86_400]


@pytest.mark.parametrize("name", ["end_time", "http.at", "ended"])
def test_times_that_are_not_read_are_never_left_out_silently(read, name):
    stamp = AT.format(1) if name != "http.at" else 1_789_372_800_123
    row = {name: stamp, "prompt_tokens": 5, "output_tokens": 5}

    notes = read([row]).notes

    assert f"{name} may be arrivals: give --columns arrival_s={name}" in notes[0]


def test_rows_of_whole_minutes_are_asked_about(read):
    rows = [
        {"ts": 1_789_372_800 + 60 * k, "input_tokens": 9000, "output_tokens": 900}
        for k in range(5)
    ]

    asked = [note for note in read(rows).notes if "arrivals are whole minutes" in note]

    assert len(asked) == 1
    assert not any("whole minutes" in note for note in read(rows[:4]).notes)


def test_a_limit_of_requests_inside_a_row_is_no_count_of_what_it_sums(read):
    row = {"ts": AT.format(1), "prompt_tokens": 5, "completion_tokens": 6}

    assert len(read([{**row, "rate_limit": {"requests": 500}}])) == 1


def test_the_data_of_a_response_do_not_hide_its_usage(read):
    row = {"created": 1_789_372_800, "data": [{"object": "x"}]}
    row["usage"] = {"prompt_tokens": 5, "completion_tokens": 6}

    assert lengths(read([row])) == [(5, 6)]


def test_a_dash_is_no_value(read):
    text = "start_time,input_tokens,output_tokens,error\n"
    text += "2026-09-14T08:00:01Z,-,-,-\n2026-09-14T08:00:02Z,5,6,-\n"

    trace = read(text)

    assert lengths(trace) == [(5, 6)]
    assert trace.left_out == {"without token counts": 1}


def test_spans_of_openinference_and_datadog_are_read(read):
    phoenix = {"start_time": AT.format(1), "attributes": {"llm": {"token_count": {}}}}
    phoenix["attributes"]["llm"]["token_count"] = {"prompt": 5, "completion": 6}
    phoenix["attributes"]["openinference"] = {"span": {"kind": "LLM"}}
    datadog = {"start_ns": 1_789_372_800_000_000_000, "status": "ok"}
    datadog["metrics"] = {"input_tokens": 5, "output_tokens": 6}

    assert lengths(read([phoenix])) == lengths(read([datadog])) == [(5, 6)]


# Counts within others, sums of calls, answers of a cache


def counted(total_of, **parts):
    """Return rows with a total of some of their parts."""
    rows = [{k: v * n for k, v in parts.items()} for n in (1, 2, 3)]
    return [
        {"time": AT.format(k), **row, "total_tokens": sum(row[at] for at in total_of)}
        for k, row in enumerate(rows)
    ]


@pytest.mark.parametrize("cached_is_beside", [True, False])
@pytest.mark.parametrize("name", ["input_tokens", "prompt_tokens"])
def test_totals_show_whether_cached_tokens_are_in_the_prompt(
    read, name, cached_is_beside
):
    of = [name, "output_tokens"] + ["cache_read_input_tokens"] * cached_is_beside
    parts = {name: 50, "cache_read_input_tokens": 20, "output_tokens": 7}

    trace = read(counted(of, **parts))

    assert lengths(trace)[0] == (70 if cached_is_beside else 50, 7)


@pytest.mark.parametrize("is_beside", [True, False])
@pytest.mark.parametrize(
    ("output", "reasoned"),
    [
        ("candidatesTokenCount", "thoughtsTokenCount"),
        ("completion_tokens", "reasoning_tokens"),
    ],
)
def test_totals_show_whether_reasoning_is_in_the_output(
    read, output, reasoned, is_beside
):
    of = ["prompt_tokens", output] + [reasoned] * is_beside
    parts = {"prompt_tokens": 50, output: 7, reasoned: 3}

    trace = read(counted(of, **parts))

    assert lengths(trace)[0] == (50, 10 if is_beside else 7)


def test_gemini_without_a_total_counts_its_thoughts(read):
    usage = {"promptTokenCount": 50, "candidatesTokenCount": 7, "thoughtsTokenCount": 3}

    trace = read([{"time": AT.format(k), "usageMetadata": usage} for k in (0, 1)])

    assert lengths(trace) == [(50, 10)] * 2


def call(own, parent, tokens=None, **more):
    usage = {} if tokens is None else dict(zip(KINDS, tokens, strict=True))
    about = {"trace_id": "t", "id": own, "parent_id": parent, "start": AT.format(1)}
    return {**about, "usage": {"m": {**usage, **more}}}


KINDS = "prompt_tokens", "completion_tokens"
CALLS = [call("a", "agent", [5, 6]), call("b", "step", [7, 8])]
STEP = call("step", "agent")


@pytest.mark.parametrize("agent", [{}, {"requests": 2}])
def test_a_call_that_repeats_the_counts_of_those_below_is_left_out(read, agent):
    trace = read([call("agent", None, [12, 14], **agent), *CALLS, STEP])

    assert lengths(trace) == [(5, 6), (7, 8)]
    assert trace.left_out["sums of the calls below"] == 1


def test_a_call_with_counts_of_its_own_above_others_is_a_request(read):
    assert len(read([call("agent", None, [20, 14]), *CALLS, STEP])) == 3


def test_turns_with_a_parent_but_no_trace_are_no_sums(read):
    rows = [call("b", "a", [5, 6]), call("a", None, [5, 6])]
    for row in rows:
        del row["trace_id"]

    assert len(read(rows)) == 2


def test_a_sum_whose_calls_are_not_in_the_file_is_refused(read):
    rows = [call("agent", None, [12, 14], requests=2), *CALLS[:1]]

    with pytest.raises(InputError, match="requests is 2; expected at most 1"):
        read(rows)


NO_ID = "00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize(
    ("column", "hit", "misses"),
    [
        ("cached", True, [False, None, 267]),
        ("cache_hit", "True", ["False", "None", ""]),
        ("cache_status", "HIT", ["MISS", "DISABLED", "REFRESH"]),
        ("cache_status", "SEMANTIC HIT", ["SEMANTIC MISS", None, ""]),
        ("cache_reference_id", "1" + NO_ID[1:], [NO_ID, None, "default"]),
    ],
)
def test_answers_of_a_gateways_cache_are_left_out(read, column, hit, misses):
    rows = [
        {"time": AT.format(k), "prompt_tokens": 5, "output_tokens": 6, column: told}
        for k, told in enumerate([hit, *misses])
    ]

    trace = read(rows)

    assert len(trace) == 3
    assert trace.left_out == {"answered from a cache": 1}


# Stamps that are asked about


def test_days_of_excel_are_refused_with_the_command_that_makes_dates(read, tmp_path):
    days = [46311.25 + k / 86_400 for k in range(5)]
    rows = [{"timestamp": day, "prompt_tokens": 5, "output_tokens": 6} for day in days]

    with pytest.raises(InputError, match="days as Excel counts them") as refused:
        read(csv_text(rows))

    command = str(refused.value).partition("dates, ")[2].rpartition(", or say")[0]
    command = f"{sys.executable} {command.removeprefix('python ')}"
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    trace = read((tmp_path / "new.csv").read_text())
    assert trace.arrival_s == pytest.approx(range(5), abs=1e-3)
    seconds = read(csv_text(rows), columns={"arrival_s": "timestamp"})
    assert seconds.arrival_s.tolist() == days


def test_an_azure_export_is_read_with_its_time(read):
    rows = [
        {"TimeGenerated [UTC]": f'"10/16/2026, 8:00:0{k}.204 AM"', **TOKENS}
        for k in (2, 3)
    ]

    assert read(csv_text(rows)).arrival_s.tolist() == [0, 1]


TOKENS = {"PromptTokens": 5, "CompletionTokens": 6}


def test_a_proposed_column_with_blanks_is_quoted(read):
    trace = read(csv_text([{"Ort [x]": 1, **TOKENS}, {"Ort [x]": 2, **TOKENS}]))

    assert "--columns 'arrival_s=Ort [x]'" in no_times(trace)


# Files that are refused with what makes them readable


@pytest.fixture
def remedy(read, tmp_path):
    """Return a function that runs the command of a refusal and reads its output."""

    def run(rows, begin, end, **options):
        with pytest.raises(InputError) as refused:
            read(rows)
        command = str(refused.value).partition(begin)[2].partition(end)[0]
        subprocess.run(begin + command, shell=True, check=True, cwd=tmp_path)
        out = next(p for p in tmp_path.iterdir() if p.name != "log")
        return read(out.read_text(), **options)

    return run


LOGGED = json.dumps(
    {"time": AT.format(1), "usage": dict(zip(KINDS, (5, 6), strict=True))}
)


@pytest.mark.parametrize(
    "rows",
    [
        [  # Docker cuts long lines
            {"log": part, "stream": "stdout"}
            for part in (LOGGED + "\n", LOGGED[:20], LOGGED[20:] + "\n")
        ],
        [
            {  # MLflow's: its sums around the calls
                "info": {"tokenUsage": '{"input_tokens": 9, "output_tokens": 9}'},
                "data": {
                    "spans": [
                        {"type": "CHAIN", "tokenUsage": ""},
                        {"time": AT.format(k), "of": {"usage": LOGGED}},
                    ]
                },
            }
            for k in (1, 2)
        ],
        json.dumps({"events": [{"id": k, "message": LOGGED} for k in (1, 2)]}),
        json.dumps([{"it's": 1, "full response": LOGGED}] * 2),
    ],
)
@pytest.mark.skipif(not shutil.which("jq"), reason="needs jq")
def test_json_in_a_text_is_refused_with_the_command_that_opens_it(remedy, rows):
    assert lengths(remedy(rows, "jq -", "; nothing")) == [(5, 6)] * 2


@pytest.mark.skipif(not shutil.which("jq"), reason="needs jq")
def test_a_line_cut_off_in_the_middle_is_refused_with_the_command_for_the_rest(remedy):
    lines = [LOGGED, LOGGED[:40], LOGGED]

    trace = remedy("\n".join(lines), "zcat", " keeps")

    assert lengths(trace) == [(5, 6)] * 2


def test_times_of_a_day_are_refused_with_the_command_that_dates_them(remedy):
    rows = [{"time": f"00:00:0{k}.5", **TOKENS} for k in (1, 3)]

    trace = remedy(csv_text(rows), "sed", "; nothing")

    assert trace.arrival_s.tolist() == [0, 2]


def test_values_without_names_are_refused_with_the_command_that_adds_them(remedy):
    trace = remedy("0.5,5,6\n1.5,5,6\n", "(echo", " writes")

    assert lengths(trace) == [(5, 6)] * 2


def test_text_of_windows_is_refused_with_the_command_that_converts_it(tmp_path):
    path = tmp_path / "log.csv"
    path.write_bytes(
        "time,prompt_tokens,output_tokens,class\n0,5,6,Köln\n".encode("cp1252")
    )

    with pytest.raises(InputError, match=r"iconv -f WINDOWS-1252 -t UTF-8 .*log.csv >"):
        read_trace(path)


@pytest.mark.parametrize("column", ["time", "PromptTokens", "CompletionTokens"])
@pytest.mark.parametrize("missing", [None, math.nan])
def test_few_rows_without_a_value_are_left_out_and_counted(read, column, missing):
    rows = [{"time": AT.format(k), **TOKENS} for k in range(10)]
    rows[4][column] = missing

    trace = read(rows)

    assert len(trace) == 9
    assert trace.left_out == {f"without {column}": 1}
    with pytest.raises(InputError, match=f"{column} is (None|nan|empty)"):
        read(rows[3:6])


@pytest.mark.parametrize("text", ["", "N/A", "n/a", "NaN", "NaT", "null"])
def test_few_cells_without_a_date_are_left_out_and_counted(read, text):
    rows = [{"time": AT.format(k), **TOKENS} for k in range(10)]
    rows[0]["time"] = text

    assert read(csv_text(rows)).left_out == {"without time": 1}
