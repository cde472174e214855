"""Whatever is changed in a file, it is read, or refused in one line that names it."""

import gzip
import json
import warnings
from dataclasses import replace

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from capplan.calibration.sweep_file import read_sweep
from capplan.cli.scenario import read_scenario
from capplan.errors import CapplanError, InputError
from capplan.fleet.prices import Market, price
from capplan.latency.importers import read_measurements
from capplan.latency.profile_file import load_profile
from capplan.llm.catalog import llm
from capplan.placement.snapshot import read_snapshot
from capplan.planning.settings.plan import PlanSettings
from capplan.report.pages.diff import MOST_CHARACTERS, diff_page
from capplan.report.received.plan_diff import plan_diff
from capplan.report.received.plan_document import read_plan
from capplan.report.received.plan_figures import plan_figures
from capplan.report.render.markdown import markdown
from capplan.shipped import shipped
from capplan.workload.readers import read_trace
from tests.calibration.test_sweep_file import ALL as LOAD_TESTS
from tests.calibration.test_sweep_file import changed
from tests.report.test_plan_diff import document, priced

TABLES = {
    "trace": (
        read_trace,
        "arrival_s,prompt_tokens,output_tokens,class,prefix_group,prefix_tokens,"
        "priority,predicted_output_tokens,slo_ttft_s,session\n"
        "0,10,20,a,1,5,0,7,1,u1\n1.5,11,21,b,-1,0,1,8,2,\n2,12,22,a,1,6,2,9,,u1\n",
    ),
    "log": (
        read_trace,
        "timestamp,input_tokens,completion_tokens,tenant,x\n"
        "2026-11-01T10:00:00Z,10,20,a,1\n2026-11-01T10:00:01Z,11,21,b,2\n",
    ),
    "azure": (
        read_trace,
        "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n"
        "2024-10-15T12:00:00.269Z,0,770,491\n2024-10-15T12:00:05.819Z,3,949,126\n",
    ),
    "sweep": (
        lambda path: read_sweep(path, 1, {}),
        "isl,osl,concurrency,tpot_ms,ttft_ms\n100,50,1,20,5\n100,50,2,22,6\n",
    ),
    "prices": (
        lambda path: price("H100", Market(file=path)),
        "gpu,usd_per_gpu_h,as_of,gpus_per_node\nH100,2,2026-11-01,8\nL4,1,2026-11,1\n",
    ),
    "points": (
        read_measurements,
        "phase,batch,new_tokens,context,seconds\ndecode,1,1,10,0.02\n"
        "prefill,1,64,0,0.03\nmixed,4,68,10,0.04\n",
    ),
    "snapshot": (
        read_snapshot,
        "prompt_tokens,predicted_output_tokens,replica\n10,20,-1\n11,21,-1\n",
    ),
}
"""What reads each kind of table, and a sound one."""

LINE = {"timestamp": 7, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}
TREES = {
    "mooncake": (read_trace, LINE, "t.jsonl"),
    "qwen": (read_trace, LINE | {"chat_id": 5, "type": "text"}, "t.jsonl"),
    "ragpulse": (read_trace, LINE | {"hash_ids": {"a": [1]}}, "t.jsonl"),
    "sharegpt": (
        read_trace,
        [{"conversations": [{"from": "human", "value": "q"}, {"from": "gpt"}]}],
        "t.json",
    ),
    "sweep": (
        lambda path: read_sweep(path, 1, {}),
        [
            {"conc": users, "isl": 10, "osl": 9, "mean_tpot": 0.01, "tp": 1}
            for users in (1, 2)
        ],
        "s.json",
    ),
    **{
        f"load tests of {tool}": (
            lambda path: read_sweep(path, 1, {}),
            {"benchmarks": [changed(test, users) for users in (8, 16)]},
            "s.json",
        )
        for tool, test in LOAD_TESTS.items()
    },
    "snapshot": (
        read_snapshot,
        {
            "schema": "capplan.snapshot/1",
            "max_replicas": 4,
            "slo": {"ttft_s": 1, "tpot_s": 0.1},
            "replica": {
                "kv_capacity_tokens": 10_000,
                "fixed_s": 0.01,
                "request_s": 1e-4,
                "context_s": 1e-7,
                "max_batch": 64,
            },
            "requests": [{"prompt_tokens": 10, "predicted_output_tokens": 5}],
        },
        "s.json",
    ),
    "prices": (
        lambda path: price("H100", Market(file=path)),
        {"H100": 2.49, "L4": {"usd_per_gpu_h": 0.8, "as_of": "2026-11-01"}},
        "p.yaml",
    ),
    "scenario": (
        lambda path: read_scenario(PlanSettings, path),
        {
            "rate": 20,
            "gpu": ["H100-SXM"],
            "tp": [1],
            "slo": {"ttft": "1s"},
            "attainment": {"all": 0.9},
            "price": {"H100": 2.5},
            "columns": {"class": "x"},
            "latency_ms": [9, 0.04, 0, 0.08, 0.00005],
            "warm_up": "1s",
            "as_of": "2026-11-01",
        },
        "s.yaml",
    ),
    "plan": (read_plan, {"request": {"rate": 1}, "certificate": None}, "plan.json"),
    "profile": (
        load_profile,
        yaml.safe_load(
            (shipped("profiles") / "H100-SXM/Llama-3.1-8B/tp1.yaml").read_text()
        ),
        "tp1.yaml",
    ),
    "config": (
        lambda path: llm(str(path)),
        {
            "model_type": "llama",
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_attention_heads": 8,
            "num_hidden_layers": 2,
            "num_key_value_heads": 8,
            "vocab_size": 100,
            "layer_types": ["full_attention", "full_attention"],
            "quantization_config": {"quant_method": "fp8"},
        },
        "config.json",
    ),
}
"""What reads each kind of JSON or YAML, a sound content, and the name of its file."""


def compared(path):
    """Compare a plan with itself and with one without an answer."""
    figures = plan_figures(path)
    for other in (figures, replace(figures, best=None, candidates={})):
        text = markdown(diff_page(plan_diff(figures, other)))
        assert len(text) <= MOST_CHARACTERS


TREES["diff"] = (compared, document(priced(), priced(tp=8)), "plan.json")

NUMBERS = (0, -1, 0.5, 1e300, 1e-300, 10**9, 10**30, 10**400, 2**63, 1.7e12)
OTHERS = (float("nan"), float("inf"), None, True, [], {}, [[1]], {"a": 1})
TEXTS = ("", "x", "NA", "1e400", "é", "9999-12-31", "1,2", "a=b", "\x00", '"', " ")
NASTY = st.sampled_from((*NUMBERS, *OTHERS, *TEXTS, "/dev/zero"))
SLOW = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow)


def read(reader, path):
    """Read a file; a refusal must be one line that is not a page long."""
    message = ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            reader(path)
        except CapplanError as error:
            message = str(error)
    assert "\n" not in message
    assert len(message) < 2000


def test_a_limit_of_400_digits_is_refused(tmp_path):
    path = tmp_path / "trace.csv"
    head = "arrival_s,prompt_tokens,output_tokens,slo_ttft_s"
    path.write_text(f"{head}\n0,10,20,1\n1,11,21,1{'0' * 400}\n")

    with pytest.raises(InputError, match="expected seconds above 0, or nothing"):
        read_trace(path)


@pytest.mark.parametrize("kind", TABLES)
@settings(max_examples=15, deadline=None, suppress_health_check=SLOW)
@given(data=st.data())
def test_a_changed_table_is_read_or_refused_in_one_line(kind, data, tmp_path):
    reader, text = TABLES[kind]
    rows = [line.split(",") for line in text.splitlines()]
    row = data.draw(st.integers(0, len(rows) - 1))
    column = data.draw(st.integers(0, len(rows[row]) - 1))
    value = str(data.draw(NASTY))
    change = data.draw(st.sampled_from(["cell", "column", "more", "less", "cut"]))
    if change == "cell":
        rows[row][column] = value
    elif change == "column":
        rows[1:] = [[*r[:column], value, *r[column + 1 :]] for r in rows[1:]]
    elif change == "more":
        rows[row].append(value)
    elif change == "less":
        del rows[row][column]
    content = "\n".join(",".join(fields) for fields in rows).encode()
    if change == "cut":
        content = content[: data.draw(st.integers(1, len(content)))]
    if data.draw(st.booleans()):
        content = gzip.compress(content)
    path = tmp_path / "file.csv"
    path.write_bytes(content)

    read(reader, path)


def places(value, where=()):
    yield where
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for key, inner in items:
        yield from places(inner, (*where, key))


@pytest.mark.parametrize("kind", TREES)
@settings(max_examples=15, deadline=None, suppress_health_check=SLOW)
@given(data=st.data())
def test_a_changed_json_or_yaml_is_read_or_refused_in_one_line(
    kind, data, tmp_path, changed
):
    reader, content, name = TREES[kind]
    spots = [where for where in places(content) if where]
    where, value = data.draw(st.sampled_from(spots)), data.draw(NASTY)
    other = changed(content, where, value)
    path = tmp_path / name
    write = yaml.safe_dump if name.endswith("yaml") else json.dumps
    path.write_text(write(other))

    read(reader, path)


@example(text="a: 1e300")
@given(text=st.text(st.characters(codec="utf-8"), max_size=60))
@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
def test_any_text_is_read_or_refused_in_one_line(text, tmp_path):
    path = tmp_path / "file"
    path.write_text(text, encoding="utf-8", newline="")

    for reader, *_ in (*TABLES.values(), *TREES.values()):
        read(reader, path)


def test_a_config_of_a_million_layers_is_refused(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(TREES["config"][1] | {"num_hidden_layers": 10**6}))

    with pytest.raises(
        InputError, match=r"num_hidden_layers is 1000000; .* 0 to 10,000"
    ):
        llm(str(path))
