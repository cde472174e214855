"""A gateway's log is read by its own column names, and nothing is dropped silently."""

import re
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capplan.errors import InputError, TraceWarning
from capplan.planning.load.traffic import read_traffic
from capplan.planning.settings.plan import PlanSettings
from capplan.settings import SettingError
from capplan.workload.readers import read_trace
from capplan.workload.readers.chunks import iterate_trace
from capplan.workload.readers.columns import NAMES, columns_among

GATEWAY = (
    "timestamp,input_tokens,output_tokens,tenant,latency_ms\n"
    "2026-11-01T10:00:00.5Z,100,20,acme,900\n"
    "2026-11-01T10:00:01Z,120,30,zen,950\n"
    "2026-11-01T10:00:02.25Z,90,10,acme,700\n"
)


@pytest.fixture
def write(tmp_path):
    def write_text(text):
        path = tmp_path / "log.csv"
        path.write_text(text)
        return path

    return write_text


def quietly(path, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)
        return read_trace(path, **options)


def test_a_gateways_log_is_guessed_with_a_note_that_names_what_is_not_read(write):
    path = write(GATEWAY)

    with pytest.warns(TraceWarning) as caught:
        trace = read_trace(path)

    text = str(caught[0].message)
    assert "guessed columns: arrival_s=timestamp,class=tenant" in text
    assert "ignored columns: latency_ms" in text
    assert "--columns" in text
    assert trace.arrival_s.tolist() == pytest.approx([0, 0.5, 1.75], abs=1e-6)
    assert [trace.class_names[i] for i in trace.request_class] == [
        "acme",
        "zen",
        "acme",
    ]
    assert trace.unread_columns == ("latency_ms",)


@pytest.mark.parametrize(
    ("header", "read"),
    [
        (
            "created,model,prompt_tokens,completion_tokens",
            {"arrival_s": "created", "class": "model"},
        ),
        (
            "startTime,Usage.PromptTokens,Usage.CompletionTokens",
            {"arrival_s": "startTime", "prompt_tokens": "Usage.PromptTokens"},
        ),
        (
            "timestamp_ms,tokens_in,tokens_out",
            {"arrival_ms": "timestamp_ms", "output_tokens": "tokens_out"},
        ),
        (
            "tenant,model,ts,prompt_tokens,output_tokens",
            {"class": "tenant", "arrival_s": "ts"},
        ),
    ],
)
def test_obvious_columns_of_a_gateway_are_guessed(header, read):
    columns = columns_among(header.split(","))

    assert read.items() <= dict(columns.names).items()
    assert set(read) & set(columns.guessed)


def test_a_name_of_capplan_is_no_guess_and_goes_before_one():
    columns = columns_among(["arrival_s", "created", "prompt_tokens", "output_tokens"])

    assert columns.names["arrival_s"] == "arrival_s"
    assert columns.guessed == ()
    assert columns.unread == ("created",)


def test_two_columns_that_may_be_the_arrival_are_asked_about(write):
    path = write("timestamp,created,prompt_tokens,output_tokens\n1,1,5,5\n")

    with pytest.raises(InputError, match=r"both timestamp and created.*--columns arr"):
        read_trace(path)
    trace = quietly(path, columns={"arrival_s": "created"})

    assert trace.arrival_s.tolist() == [1]


def test_columns_are_named_by_flag_scenario_and_python_alike(write):
    path = write("when,who,a,b\n7.5,x,5,6\n9,y,7,8\n")
    said = {"arrival_s": "when", "class": "who", "prompt_tokens": "a"}
    said |= {"output_tokens": "b"}
    text = ",".join(f"{column}={name}" for column, name in said.items())

    by_flag = PlanSettings(trace=path, columns=[text])
    by_key = PlanSettings(trace=path, columns=said)

    assert by_flag.columns == by_key.columns == said
    trace = read_trace(path, columns=said)
    assert trace.arrival_s.tolist() == [7.5, 9]
    assert trace.class_names == ("x", "y")
    assert (trace.prompt_tokens[1], trace.output_tokens[1]) == (7, 8)
    assert trace.notes == ()


def test_chunks_take_the_same_columns(write):
    path = write("when,a,b,c\n7.5,5,6,1\n9,7,8,1\n")
    said = {"arrival_s": "when", "prompt_tokens": "a", "output_tokens": "b"}

    with pytest.warns(TraceWarning, match="ignored columns: c"):
        chunks = list(iterate_trace(path, 1, said))

    assert [chunk.arrival_s.tolist() for chunk in chunks] == [[7.5], [9]]


def test_an_empty_name_leaves_a_guessed_column_out(write):
    path = write(GATEWAY)

    trace = quietly(path, columns={"class": ""})

    assert trace.class_names == ("all",)
    assert trace.unread_columns == ("tenant", "latency_ms")


@pytest.mark.parametrize("tenants", [["a", "", "b"], list(map(str, range(21)))])
def test_tenants_are_guessed_to_be_classes_only_where_they_are_few(write, tenants):
    rows = "".join(f"{k},5,5,{name}\n" for k, name in enumerate(tenants))
    path = write("arrival_s,prompt_tokens,output_tokens,tenant\n" + rows)

    with pytest.warns(TraceWarning, match="ignored columns: tenant"):
        trace = read_trace(path)

    assert trace.class_names == ("all",)


def test_no_arrival_times_is_never_said_while_columns_were_not_read(write):
    path = write("when,prompt_tokens,output_tokens\n2026-11-01,5,5\n2026-11-02,5,5\n")
    settings = PlanSettings(trace=path)

    with (
        pytest.warns(TraceWarning, match="ignored columns: when"),
        pytest.raises(
            InputError, match="when may be arrivals: give --columns arrival_s=when"
        ),
    ):
        read_traffic(settings, None)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("arival_s=when", "'arival_s' is no column of a trace; did you mean arrival_s"),
        ("when", "'when' names no column; expected NAME=COLUMN"),
        ("class=a,class=b", "class is named twice"),
        ("class=a,prompt_tokens=a", "'a' is named for two columns"),
        ("arrival_s=a,arrival_ms=b", "two units of arrivals are named"),
    ],
)
def test_wrong_columns_are_refused_in_the_settings(said, message):
    with pytest.raises(SettingError, match=message):
        PlanSettings(columns=[said])


def test_a_column_that_the_file_lacks_is_refused_with_those_it_has(write):
    path = write(GATEWAY)

    with pytest.raises(InputError, match=r":1: no column who, .* has timestamp, input"):
        read_trace(path, columns={"class": "who"})


def test_columns_said_go_before_those_of_a_format(write):
    path = write(
        "TIMESTAMP,ContextTokens,GeneratedTokens,n\n2024-05-10 00:00:00,5,5,7\n"
    )

    trace = read_trace(path, reader_name="azure", columns={"output_tokens": "n"})

    assert (trace.prompt_tokens[0], trace.output_tokens[0]) == (5, 7)


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_epoch_stamps_in_a_smaller_unit_are_refused_with_the_question(write, unit):
    per_s = {"ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    rows = "".join(f"{(1_700_000_000 + k) * per_s},5,5\n" for k in range(3))
    path = write("arrival_s,prompt_tokens,output_tokens\n" + rows)
    named = {"ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}[unit]
    question = f"is it {named} since 1970? then --columns arrival_{unit}=arrival_s"

    with pytest.raises(InputError, match=re.escape(question)) as caught:
        read_trace(path)
    with pytest.raises(InputError, match=re.escape(question)):
        list(iterate_trace(path))

    assert str(caught.value).startswith(f"{path}:2: arrival_s is 17")
    trace = read_trace(path, columns={f"arrival_{unit}": "arrival_s"})
    assert trace.arrival_s.tolist() == pytest.approx([0, 1, 2], abs=1e-6)


def test_epoch_milliseconds_are_refused_in_formats_that_have_seconds(write):
    burst = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    burst += "1700000000000,GPT-4,5,5,10,API log\n"
    ragpulse = '{"timestamp": "1700000000000", "input_length": 5, "output_length": 5, '
    ragpulse += '"hash_ids": {"sys_prompt": [1]}}\n'
    for text in (burst, ragpulse):
        with pytest.raises(InputError, match=r"is it milliseconds since 1970\?"):
            read_trace(write(text))


def test_an_arrival_years_from_all_others_is_refused(write):
    path = write("arrival_s,prompt_tokens,output_tokens\n0,5,5\n1,5,5\n1e9,5,5\n")

    with pytest.raises(InputError, match=r"no request arrives for 31.7 years, between"):
        read_trace(path)


@pytest.mark.parametrize("stamp", ["9999-12-31 00:00:00", "1677-01-01 00:00:00"])
def test_an_azure_stamp_beyond_the_years_of_int64_is_refused(write, stamp):
    text = f"TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10,5,5\n{stamp},5,5\n"

    with pytest.raises(InputError, match=f":3: TIMESTAMP is {stamp}; expected"):
        read_trace(write(text))


@pytest.mark.parametrize("name", ["NA", "null", "None", "nan", "N/A"])
def test_a_class_called_na_is_a_class(write, name):
    path = write(
        f"arrival_s,prompt_tokens,output_tokens,class\n0,5,5,{name}\n1,5,5,b\n"
    )

    trace = read_trace(path)

    assert trace.class_names[trace.request_class[0]] == name


WORDS = "timestamp created created_at ts_ms tenant model class arrival_s prompt_tokens "
WORDS += "input_tokens completion_tokens output_tokens user x Prompt-Tokens priority"


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(header=st.lists(st.sampled_from(WORDS.split()), unique=True, min_size=1))
def test_every_column_of_a_header_is_read_once_or_named_as_unread(header):
    try:
        columns = columns_among(header)
    except InputError:  # two may be the same column
        return

    assert sorted((*columns.names.values(), *columns.unread)) == sorted(header)
    assert set(columns.names) <= set(NAMES)
    for name in (*columns.unread, *(columns.names[c] for c in columns.guessed)):
        assert name in columns.note
