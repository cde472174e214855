"""LoRA adapters in settings, memory, trace, plan and launch line."""

import pytest

from capplan.deployment.configuration import Configuration
from capplan.errors import CapplanWarning, InputError
from capplan.llm.adapters import slot_bytes
from capplan.llm.catalog import llm
from capplan.planning.configure.configuration import configurations, only_configuration
from capplan.planning.configure.launch import launch
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import PlanSettings, SimulateSettings
from capplan.settings import SettingError
from capplan.workload.readers import read_trace

LLAMA = {"llm": "Llama-3.1-8B", "gpu": "H100-SXM", "tp": 1, "lora_slowdown": 0.1}
LORA = {**LLAMA, "enable_lora": True, "max_loras": 4, "max_cpu_loras": 8}


def only(**settings) -> Configuration:
    (one,) = configurations(PlanSettings(**settings))
    assert isinstance(one, Configuration), one.reason
    return one


def test_slots_take_their_memory_from_the_kv():
    alone = only(**{**LLAMA, "lora_slowdown": None})
    slots = only(**LORA)

    taken_bytes = 4 * slot_bytes(llm("Llama-3.1-8B"), 1, 16)
    assert slots.replica.budget.adapter_bytes == taken_bytes
    fewer = alone.engine.kv_blocks - slots.engine.kv_blocks
    assert fewer == pytest.approx(taken_bytes / slots.engine.kv_block_bytes, abs=1)


def test_adapters_are_loaded_over_the_link_and_read_as_weights_are():
    adapters = only(**LORA, max_lora_rank=64, lora_rank=8).engine.adapters

    own_bytes = slot_bytes(llm("Llama-3.1-8B"), 1, 8)
    assert adapters.slot_bytes == 8 * own_bytes
    assert adapters.load_s == pytest.approx(own_bytes / 24e9)
    assert adapters.fetch_s == pytest.approx(own_bytes / 2e9)
    # 0.82 of 3.35 TB/s, see roofline.py.
    assert adapters.read_s == pytest.approx(own_bytes / (0.82 * 3.35e12))


def test_a_stage_has_the_adapters_of_its_layers():
    given = {**LORA, "llm": "Llama-3.1-70B", "tp": 4}

    whole, half = (
        only(**given, pipeline_parallel_size=stages).engine.adapters
        for stages in (1, 2)
    )

    embeddings = 2 * (128_256 + 8192)
    of_layers = whole.slot_bytes / (2 * 16) - embeddings
    assert half.slot_bytes == 2 * 16 * (of_layers / 2 + embeddings)
    assert half.load_s == pytest.approx(half.slot_bytes / 24e9)
    assert half.read_s == whole.read_s  # of all stages together


def test_given_times_go_before():
    adapters = only(**LORA, lora_load_ms=3, lora_fetch_ms=0).engine.adapters

    assert (adapters.load_s, adapters.fetch_s) == (0.003, 0.0)
    assert adapters.slowdown == 0.1


def test_an_unmeasured_slowdown_is_warned_of():
    with pytest.warns(CapplanWarning, match="--lora-slowdown is not given"):
        only(**{**LORA, "lora_slowdown": None})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"max_loras": 2}, "max_loras is given; expected --enable-lora with it"),
        ({"lora_rank": 8}, "lora_rank is given; expected --enable-lora with it"),
    ],
)
def test_settings_of_adapters_where_none_are_served_are_refused(given, reason):
    with pytest.raises(SettingError, match=reason):
        PlanSettings(llm="Llama-3.1-8B", **given)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"lora_rank": 32}, r"lora_rank is 32; expected 1 to max_lora_rank \(16\)"),
        ({"max_cpu_loras": 2}, r"max_cpu_loras is 2; expected max_loras \(4\)"),
        ({"max_lora_rank": 48}, "max_lora_rank is 48; expected one of .* as 64"),
    ],
)
def test_slots_that_vllm_refuses_are_refused(given, reason):
    settings = PlanSettings(**{**LORA, **given})

    with pytest.raises(InputError, match=reason):
        list(configurations(settings))


def test_bytes_of_an_adapter_need_an_llm():
    with pytest.raises(InputError, match="give --lora-load-ms and --lora-fetch-ms"):
        only_configuration(
            SimulateSettings(
                latency_ms="10,0,0,0,0", kv_blocks=9, enable_lora=True, lora_slowdown=0
            )
        )


def test_the_launch_line_gives_the_slots():
    settings = PlanSettings(**LORA, latency_ms="5,0.01,0,0.1,0")
    (one,) = configurations(settings)

    line = launch(one, settings).line

    wanted = "--enable-lora --max-loras 4 --max-cpu-loras 8 --max-lora-rank 16"
    assert wanted in line


def test_a_trace_names_adapters(tmp_path):
    path = tmp_path / "requests.csv"
    path.write_text(
        "arrival_s,prompt_tokens,output_tokens,adapter\n"
        "0,10,5,sql\n1,10,5,\n2,10,5,chat\n3,10,5,sql\n"
    )

    trace = read_trace(path)

    sql, alone, chat, again = trace.adapter.tolist()
    assert alone == -1
    assert sql == again != chat
    assert min(sql, chat) >= 0


def rows(tmp_path, adapters: int):
    path = tmp_path / f"of-{adapters}.csv"
    lines = [f"{k / 20},300,80,a{k % adapters}" for k in range(400)]
    path.write_text(
        "arrival_s,prompt_tokens,output_tokens,adapter\n" + "\n".join(lines)
    )
    return str(path)


def test_a_plan_serves_adapters_and_says_what_it_assumes(tmp_path):
    asked = {
        **LORA,
        "slo": "ttft=1s,tpot=30ms",
        "price": {"H100-SXM": "3"},
        "workload": rows(tmp_path, 3),
    }

    made = plan(PlanSettings(**asked))

    assert made.best is not None
    found = {row.what: row for row in made.assumptions}
    row = found["LoRA adapters, H100-SXM × TP 1"]
    assert row.value.startswith("rank 16; 4 slots of rank 16")
    assert row.how == "assumed"


def test_requests_for_adapters_of_a_plan_without_are_refused(tmp_path):
    asked = {**LLAMA, "lora_slowdown": None, "slo": "ttft=1s"}

    with pytest.raises(InputError, match="400 requests ask for an adapter; expected"):
        plan(PlanSettings(**asked, workload=rows(tmp_path, 3)))
