"""Requests that a fleet answered, of gateways, spans and clients."""

import json

import pytest

from capplan.errors import InputError
from capplan.workload.metrics.requests import read_served_requests

ROWS = {
    "capplan": (
        "arrival_s,first_token_s,finish_s,prompt_tokens,output_tokens,replica\n"
        "0.5,0.75,2.5,100,8,0\n"
    ),
    "litellm": (
        "startTime,completionStartTime,endTime,prompt_tokens,completion_tokens,session_id\n"
        "2026-11-01T00:00:00.500Z,2026-11-01T00:00:00.750Z,2026-11-01T00:00:02.5Z,100,8,a\n"
    ),
    "helicone": (
        "request_created_at,time_to_first_token,delay_ms,prompt_tokens,completion_tokens\n"
        "2026-11-01T00:00:00.5+00:00,250,2000,100,8\n"
    ),
    "langfuse": json.dumps(
        {
            "type": "GENERATION",
            "start_time": "2026-11-01T00:00:00.5Z",
            "completion_start_time": "2026-11-01T00:00:00.75Z",
            "end_time": "2026-11-01T00:00:02.5Z",
            "usage_details": {"input": 100, "output": 8},
        }
    ),
    "client": (
        "conversation,depth,start_ns,end_ns,usage_prompt,osl,ttft_ms,e2e_ms,cancelled,phase\n"
        "a,0,1780508691500000000,1780508693500000000,100,8,250,2000,False,profiling\n"
        "a,0,1780508690500000000,1780508691500000000,100,8,250,1000,False,warmup\n"
        "a,0,1780508690500000000,1780508691500000000,100,8,250,1000,True,profiling\n"
    ),
    "vllm's spans": json.dumps(
        {
            "startTimeUnixNano": 1780508691500000000,
            "endTimeUnixNano": 1780508693500000000,
            "gen_ai.usage.prompt_tokens": 100,
            "gen_ai.usage.completion_tokens": 8,
            "gen_ai.latency.time_to_first_token": 0.25,
        }
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_times_and_tokens_are_read_whoever_wrote_them(tmp_path, name):
    path = tmp_path / ("r.jsonl" if ROWS[name].startswith("{") else "r.csv")
    path.write_text(ROWS[name])

    found = read_served_requests(path)

    start_s = found.trace.arrival_s[0]
    assert len(found.trace) == 1
    assert found.first_token_s[0] - start_s == pytest.approx(0.25)
    assert found.finish_s[0] - start_s == pytest.approx(2.0)
    assert found.trace.prompt_tokens[0] == 100
    assert found.trace.output_tokens[0] == 8
    assert found.left_out == (2 if name == "client" else 0)


def test_turns_of_a_conversation_share_what_was_before_and_come_when_they_came(
    tmp_path,
):
    path = tmp_path / "r.csv"
    path.write_text(
        "session,arrival_s,finish_s,prompt_tokens,output_tokens\n"
        "a,10,12,100,8\nb,11,12,50,5\na,14,15,120,9\n"
    )

    trace = read_served_requests(path).trace

    assert trace.arrival_s.tolist() == [10, 11, 14]
    assert trace.parent.tolist() == [-1, -1, 0]
    assert trace.prefix_tokens.tolist() == [0, 0, 108]
    assert not trace.has_waits


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("arrival_s,prompt_tokens\n1,2\n", "has no output_tokens, finish_s or e2e_s"),
        (
            "arrival_s,finish_s,prompt_tokens,output_tokens\n1,x,3,4\n",
            "r.csv:2: finish_s is 'x'",
        ),
        ("arrival_s,finish_s,prompt_tokens,output_tokens\n3,2,3,4\n", "an end after"),
        (
            "arrival_s,finish_s,prompt_tokens,output_tokens\n3,4,0,4\n",
            "no answered request",
        ),
    ],
)
def test_rows_without_what_is_compared_are_refused(tmp_path, text, message):
    path = tmp_path / "r.csv"
    path.write_text(text)

    with pytest.raises(InputError, match=message):
        read_served_requests(path)
