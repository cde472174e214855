"""Files in which the requests' columns are not found, or mean something else."""

import json
import warnings

import pytest

from capplan.errors import InputError, TraceWarning
from capplan.workload.readers import read_trace
from capplan.workload.readers.chunks import iterate_trace

SUM = "each row is a sum of requests"


def quietly(path, **given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)
        return read_trace(path, **given)


def refused(tmp_path, text, name="log.csv", **given):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_trace(path, **given)
    return str(error.value)


@pytest.mark.parametrize(
    "header",
    [
        "time,count(*),sum(prompt_tokens),sum(completion_tokens)",
        "Time,rate(vllm:prompt_tokens_total[1m]),output_tokens",
        "usage_date_utc,usage_input_tokens_no_cache,usage_output_tokens",
    ],
)
def test_sums_are_refused_without_a_command_and_under_columns(tmp_path, header):
    at, prompt, output = header.split(",")[0], *header.split(",")[-2:]
    text = f"{header}\n{','.join('1' * len(header.split(',')))}\n"
    asked = {"arrival_s": at, "prompt_tokens": prompt, "output_tokens": output}

    for given in ({}, {"columns": asked}):
        said = refused(tmp_path, text, **given)
        assert SUM in said
        assert "--columns" not in said


@pytest.mark.parametrize("row", ["0.313,742,26", "2026-09-14T08:00:00Z,742,26,chat"])
def test_a_file_without_a_header_says_so(tmp_path, row):
    assert "no header" in refused(tmp_path, f"{row}\n{row}\n")


NO_COUNTS = {
    "these are metrics of OpenTelemetry": {"resourceMetrics": [{"scopeMetrics": []}]},
    "these are logs of OpenTelemetry": {"resourceLogs": [{"scopeLogs": []}]},
    "no spans are in it": {"resourceSpans": []},
    "these are LiteLLM's sums by day: ask with summarize=false": {
        **{"startTime": "2026-09-01", "spend": 12.3},
        **{"users": {"u1": 12.3}, "models": {"llama": 12.3}},
    },
    "bytes: no token counts; --columns says": {
        **{"time": "2026-09-14T08:00:00Z", "method": "POST", "status": 200},
        "bytes": 123,
    },
    "total_tokens cannot be divided into prompt and output": {
        **{"timestamp": "2026-09-14T08:00:00Z", "total_tokens": 768}
    },
    "this is a table by columns": {
        "columns": ["prompt_tokens", "output_tokens"],
        **{"index": [0], "data": [[742, 26]]},
    },
    "prompt, response: no token counts": {"prompt": "what is it", "response": "a key"},
    "attributes.http.method: no token counts": {
        "resourceSpans": [
            {
                "scopeSpans": [
                    {
                        "spans": [
                            {"attributes": [{"key": "http.method", "value": "GET"}]}
                        ]
                    }
                ]
            }
        ]
    },
    "export its observations": {"id": "a", "htmlPath": "/x", "input": {"q": "x"}},
}


@pytest.mark.parametrize("said", NO_COUNTS)
def test_a_file_without_token_counts_is_named_and_has_no_command(tmp_path, said):
    text = refused(tmp_path, json.dumps(NO_COUNTS[said]), "log.json")

    assert said in text
    assert "NAME" not in text
    assert "prompt_tokens=" not in text


def test_a_total_beside_counts_of_other_names_hides_no_command(tmp_path):
    text = "at,n_ctx,n_gen,total_tokens,messages\n2026-01-01T00:00:00Z,5,6,11,x\n"

    said = refused(tmp_path, text)

    assert said.endswith(
        "--columns arrival_s=at,prompt_tokens=n_ctx,output_tokens=n_gen"
    )


def test_names_that_are_numbers_may_be_said(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("0,1\n742,26\n")

    trace = read_trace(path, columns={"prompt_tokens": "0", "output_tokens": "1"})

    assert trace.prompt_tokens.tolist() == [742]


def test_a_table_by_columns_names_what_writes_rows(tmp_path):
    table = {"prompt_tokens": {"0": 1, "1": 2}, "output_tokens": {"0": 3, "1": 4}}

    said = refused(tmp_path, json.dumps(table), "log.json")

    assert "orient='records'" in said


@pytest.mark.parametrize(
    "text",
    [
        "INFO 09-14 [logger.py:43] Received request a: prompt: 'secret', params\n",
        "my secret is that of nobody else in this town,and of none beside\na,b\n",
    ],
)
def test_texts_of_users_are_never_printed(tmp_path, text):
    assert "secret" not in refused(tmp_path, text)


def test_whole_numbers_of_an_unknown_begin_are_asked_for_their_unit(tmp_path):
    rows = "".join(f"{313 + 600 * k},742,26\n" for k in range(60))
    text = f"timestamp,prompt_tokens,output_tokens\n{rows}"

    with pytest.warns(match="guessed"):
        said = refused(tmp_path, text)

    assert "--columns arrival_s=timestamp or arrival_ms=timestamp" in said
    assert "0.00167 requests/s if it has seconds, 1.667 if milliseconds" in said
    path = tmp_path / "log.csv"
    asked = read_trace(path, columns={"arrival_ms": "timestamp"})
    assert asked.arrival_s.max() == pytest.approx(0.313 + 59 * 0.6)


@pytest.mark.parametrize(
    "stamp", ["2026-09-14 08:00:0{},313", "2026-09-14 08:00:0{}.313 UTC"]
)
def test_dates_as_python_and_bigquery_write_them(tmp_path, stamp):
    path = tmp_path / "log.csv"
    rows = "".join(f'"{stamp.format(k)}",742,26\n' for k in range(3))
    path.write_text(f"time,prompt_tokens,completion_tokens\n{rows}")

    with pytest.warns(match="guessed"):
        assert read_trace(path).arrival_s.tolist() == [0, 1, 2]


def test_objects_in_cells_of_langfuses_export_are_read(tmp_path):
    path = tmp_path / "events.csv"
    details = [
        {},
        {"input": 60, "output": 190, "output_reasoning_tokens": 7, "total": 257},
        {"input": 577, "output": 197, "input_cached_tokens": 40, "total": 814},
    ]
    head = "id,type,startTime,level,usageDetails,costDetails,totalCost\n"
    rows = "".join(
        f"o{k},{'SPAN' if k == 0 else 'GENERATION'},2026-09-14T08:00:0{k}.730Z,DEFAULT,"
        f'"{json.dumps(each)}","{{}}",0.1\n'.replace('"{"', '"{""')
        for k, each in enumerate(details)
    )
    path.write_text(head + rows.replace('": ', '"": ').replace(', "', ', ""'))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)
        trace, chunks = read_trace(path), list(iterate_trace(path, 1))

    # Langfuse's own sums: of all details that begin with input or output.
    assert trace.prompt_tokens.tolist() == [60, 617]
    assert trace.output_tokens.tolist() == [197, 197]
    assert [chunk.prompt_tokens.tolist() for chunk in chunks] == [[60], [617]]


def test_a_name_with_points_may_have_objects_in_its_cells(tmp_path):
    path = tmp_path / "log.csv"
    counts = '"{""prompt_tokens"": 5, ""completion_tokens"": 0.5}"'
    path.write_text(f"arrival_s,llm.usage\n1,{counts}\n")

    with pytest.raises(
        InputError, match=r":2: llm.usage.completion_tokens is {"
    ) as error:
        quietly(path)
    path.write_text(f"arrival_s,llm.usage\n1,{counts.replace('0.5', '7')}\n")

    assert "expected a whole number" in str(error.value)
    assert quietly(path).output_tokens.tolist() == [7]


def test_langfuses_batch_export_has_its_counts_in_usage_details(tmp_path):
    path = tmp_path / "observations.jsonl"
    row = {"type": "GENERATION", "start_time": "2026-09-14 08:00:37", "input": "x"}
    row |= {"output": "y", "usage_details": {"input": "577", "output": "197"}}
    path.write_text(json.dumps(row) + "\n")

    with pytest.warns(match="guessed"):
        trace = read_trace(path)

    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == (
        [577],
        [197],
    )
