"""Each setting of a command is read by it: no flag is without effect."""

from functools import partial

import pytest

from capplan.planning.autoscale.settings import AutoscaleSettings
from capplan.planning.budget.settings import BudgetSettings
from capplan.planning.compare.settings import CompareSettings
from capplan.planning.money.prices import list_offers
from capplan.planning.settings.place import PlaceSettings
from capplan.planning.settings.plan import (
    CapacitySettings,
    DemandSettings,
    OffersSettings,
    PlanSettings,
    SearchSettings,
    SimulateSettings,
)
from capplan.report import to_files
from capplan.settings import SettingError, Settings

WORKLOAD = {"workload": "synthetic:prompt=300,output=80,n=300"}
ON_H100 = {"llm": "Llama-3.1-8B", "gpu": "H100-SXM", "tp": 1}
VALUES = {
    "limit_mm_per_prompt": '{"image":1}',
    "mm_encoder_tp_mode": "data",
    "reader": "csv",
    "columns": "class=tenant",
    "sharegpt_rule": "vllm",
    "tokenizer": None,
    "arrivals": "poisson",
    "predictor": "oracle",
    "at": "2s",
    "gpu": "H100-SXM",
    "kv_blocks": 9,
    "latency_quantile": 0.5,
    "profiles": "folder",
    "engine_overhead": "none",
    "salvage": True,
    "heartbeat": "2s",
    "kv_cache_dtype": "fp8",
    "engine": "vllm@0.13",
    "backtest": "1.1[1.0,1.2]@Llama-3.1-8B/H100-SXM/tp1",
}
"""Of settings that do not take a 1."""
PLACED = {**WORKLOAD, **ON_H100, "slo": "ttft=1s", "rate": 20, "at": "12s"}
SLO = {"slo": "ttft=1s,tpot=30ms", "attainment": 0.9}


@pytest.fixture
def read(monkeypatch):
    """Names of the settings that are read, whichever command's they are."""
    names = set()

    def recording(self, name):
        if name in type(self).model_fields:
            names.add(name)
        return object.__getattribute__(self, name)

    monkeypatch.setattr(Settings, "__getattribute__", recording)
    return names


BUDGETED = {"anchor_months": 1, "horizon_months": 1, "policies": "hpa"}
RUNS = [
    (
        partial(to_files.answer, "budget"),
        BudgetSettings,
        {**WORKLOAD, **ON_H100, **SLO, **BUDGETED, "rate": 20},
    ),
    (to_files.plan, PlanSettings, {**WORKLOAD, **ON_H100, **SLO, "rate": 20}),
    (to_files.simulate, SimulateSettings, {**WORKLOAD, **ON_H100, **SLO, "rate": 20}),
    (
        partial(to_files.answer, "search"),
        SearchSettings,
        {**WORKLOAD, **ON_H100, "slo": "tpot=30ms"},
    ),
    (
        partial(to_files.answer, "compare"),
        CompareSettings,
        {**WORKLOAD, **ON_H100, **SLO, "rate": 20, "systems": "vllm-v1"},
    ),
    (
        partial(to_files.answer, "demand"),
        DemandSettings,
        {**WORKLOAD, **ON_H100, **SLO, "rates": (20, 40, 60, 80)},
    ),
    (
        partial(to_files.answer, "capacity"),
        CapacitySettings,
        {**WORKLOAD, **ON_H100, **SLO, "replicas": 1, "think": "exp:1s"},
    ),
    (to_files.place, PlaceSettings, PLACED),
    (
        partial(to_files.answer, "autoscale"),
        AutoscaleSettings,
        {**WORKLOAD, **ON_H100, **SLO, "rate": 20, "cold_start": "1s"},
    ),
]

RANKS = {
    "llm": "DeepSeek-R1",
    "gpu": "H200",
    "data_parallel_size": 8,
    "enable_expert_parallel": True,
    "enable_eplb": True,
    "eplb_config": '{"num_redundant_experts":32}',
    "prefill_schedule_interval": 2,
}

MORE = {
    PlanSettings: [
        {},
        {"disaggregated": True},
        {"draws": 1},
        {"availability": 0.9},
        {"mix": True},
    ],
    BudgetSettings: [{}, {"spot_share": 0.5, "spot_price": 1.0}],
    SimulateSettings: [
        RANKS,
        {"replicas": 2},
        {"prefill_replicas": 1, "decode_replicas": 1},
        {"autoscaler": "hpa:target=9", "cold_start": "1s"},
    ],
}
"""What else is asked for, where that keeps settings from being read or lets them be;
where they would not be read they are refused (``test_moving_run.py``)."""


def when_made(model):
    """Return the settings that are read as they are given."""
    return {"gpu_file", *model.needed()}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("run", "model", "asked"),
    RUNS,
    ids=[model.__name__ for _, model, _ in RUNS],
)
def test_a_command_reads_each_of_its_settings(read, run, model, asked, tmp_path):
    found = set()
    for more in MORE.get(model, [{}]):
        settings = model(**{**asked, **more}, out=str(tmp_path / "out"))
        read.clear()
        run(settings)
        found |= read

    assert set(model.model_fields) - found - when_made(model) == set()


def test_a_list_of_offers_reads_each_of_its_settings(read):
    settings = OffersSettings()
    read.clear()

    list_offers(settings)

    assert set(OffersSettings.model_fields) - read - when_made(OffersSettings) == set()


@pytest.mark.parametrize("replica", [{}, ON_H100], ids=["its own", "given"])
def test_what_a_placement_of_a_snapshot_does_not_read_it_refuses(
    read, replica, tmp_path
):
    path = tmp_path / "now.json"
    to_files.place(PlaceSettings(**PLACED, export=str(path)))
    settings = PlaceSettings(snapshot=str(path), **replica)
    read.clear()

    to_files.place(settings)

    unread = set(PlaceSettings.model_fields) - read
    assert {"rate", "at", "workload"} <= unread
    assert ("kv_cache_dtype" in unread) == (replica == {})
    for name in unread - {"trace", "workload"} - when_made(PlaceSettings):
        given = {"snapshot": str(path), name: VALUES.get(name, 1)}
        with pytest.raises(SettingError, match=f"{name} has no effect with a snap"):
            PlaceSettings(**(given | replica))


def test_a_setting_that_nobody_reads_would_be_found(read):
    class WithOneMore(SearchSettings):
        forgotten: int = 0

    settings = WithOneMore(**WORKLOAD, **ON_H100)
    read.clear()

    to_files.answer("search", settings)

    assert set(WithOneMore.model_fields) - read - when_made(WithOneMore) == {
        "forgotten"
    }
