"""Each row of ``conflicts.csv`` refuses, and every other pair of features runs."""

from dataclasses import fields, replace
from itertools import combinations

import numpy as np
import pytest

from capplan.conflicts import conflict_of, conflicts
from capplan.deployment.adapters import Adapters
from capplan.deployment.changes import Change
from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.features import features_of_engine
from capplan.deployment.images import Images
from capplan.deployment.pipeline import Pipeline
from capplan.deployment.pools import Deployment, Pool
from capplan.deployment.speculation import Speculation
from capplan.deployment.split import SizeBand, Split
from capplan.deployment.tier import Tier
from capplan.errors import InputError
from capplan.latency.contract import linear_tables
from capplan.latency.rank_tables import RankTables
from capplan.planning.compare.settings import CompareSettings
from capplan.planning.configure.configuration import configurations, runnable
from capplan.planning.settings.plan import PlanSettings, SimulateSettings
from capplan.settings import SettingError
from capplan.simulator.checks import (
    features_of_hand_off,
    features_of_router,
    without_unsupported,
)
from capplan.simulator.schedulers import parse_scheduler
from capplan.simulator.simulate import simulate
from capplan.workload.slo import parse_slo
from capplan.workload.trace import MAX_TOKENS, Trace
from tests.uncompiled import in_python, is_set, run_uncompiled

TRACE = Trace(
    [20, 30, 40, 20, 30, 40],
    [4, 5, 6, 4, 5, 6],
    np.linspace(0.0, 1.0, 6),
    session=np.arange(6) % 2,
    predicted_output_tokens=np.array([4, 5, 6, 4, 5, 6]),
)
TABLES = linear_tables(0.005, 1e-7, 1e-9, 1e-4, 1e-5, max_batch=8, max_tokens=64)
PART_S = np.full(200, 1e-4)
SPLIT = Split((SizeBand("", (1, MAX_TOKENS)),), ((1, 1),))
ENGINES = {
    "sarathi": {"scheduler": parse_scheduler("sarathi")},
    "sglang": {"scheduler": parse_scheduler("sglang")},
    "priority": {"scheduler": parse_scheduler("vllm-v1-priority")},
    "drafts": {"speculation": Speculation("ngram", (0.5,))},
    "adapters": {"adapters": Adapters(2, 2)},
    "images": {"images": Images(max_image_tokens=32)},
    "states": {
        "prefix_caching": True,
        "bounded_groups": 1,
        "bounded_blocks": 2,
        "state_groups": 1,
    },
    "no async scheduling": {"async_scheduling": False},
    "stages": {"pipeline": Pipeline(2)},
    "ranks": {"data_parallel_size": 2},
    "interval": {"data_parallel_size": 2, "prefill_schedule_interval": 2},
    "dcp": {"decode_context_parallel_size": 2},
    "tier": {"tier": Tier(chunks=9)},
    "kept answers": {"tier": Tier(chunks=9, answers=True)},
    "windows": {"bounded_groups": 1, "bounded_blocks": 2},
}
"""Engine settings of each feature that an engine may have."""
FLEETS = {
    "best-fit": {"router": "best-fit"},
    "llm-d": {"router": "llm-d"},
    "rebalancer": {"rebalancer": "llumnix"},
    "dispatcher": {"dispatcher": "aladdin"},
    "autoscaler": {"autoscaler": "hpa:target=9,max=3", "cold_start_s": 0.1},
    "deaths": {"changes": (Change(0.5, "fail"), Change(0.6, "up"))},
    "nixl": {"hand_off": "nixl"},
    "distserve": {"hand_off": "distserve"},
    "threshold": {"hand_off": "nixl:threshold=9"},
    "split": {"split": SPLIT},
}
"""Fields of a deployment of each feature that a fleet may have."""
ALL = {**ENGINES, **FLEETS, "turns": {}}
PAIRS = [
    pair for pair in combinations(ALL, 2) if not {*ALL[pair[0]]} & {*ALL[pair[1]]}
] + [("ranks", "interval"), ("drafts", "priority", "nixl")]


def given(names) -> tuple[EngineSettings, dict]:
    """Return an engine and the fields of a deployment with some features."""
    both = {field: value for name in names for field, value in ALL[name].items()}
    if {"turns", "tier", "kept answers"} & {*names}:
        both["prefix_caching"] = True
    known = {field.name for field in fields(EngineSettings)} & {*both}
    engine = EngineSettings(
        max_num_batched_tokens=64,
        max_num_seqs=8,
        kv_blocks=200,
        kv_block_bytes=1000,
        **{field: both.pop(field) for field in known},
    )
    return without_unsupported(engine), both


def fleet(names) -> Deployment:
    """Return a deployment with some features."""
    engine, beside = given(names)
    ranks = engine.data_parallel_size
    tables = RankTables(TABLES, ranks, PART_S, PART_S, PART_S, PART_S)
    tables = tables if ranks > 1 else None
    pool = Pool(Configuration(engine, TABLES, rank_tables=tables), 2)
    pools = (pool, pool) if {"hand_off", "split"} & {*beside} else (pool,)
    return Deployment(pools, link_gb_per_s=25.0, **beside)


def features(names) -> dict[str, str]:
    """Return the features of a deployment, without making it."""
    engine, beside = given(names)
    found = features_of_engine(engine)
    for name in {*names} & {*FLEETS}:
        found |= fleet([name]).features
    if "turns" in names:
        found["turns"] = "given in Python: parent or after"
        if not engine.prefix_caching:
            found.pop("other scheduler", None)
    if "hand_off" in beside:
        found |= features_of_hand_off(beside["hand_off"])
    return found | features_of_router(beside.get("router", "jsq"))


def run(names) -> None:
    """Simulate a deployment with some features."""
    deployment = fleet(names)
    trace = TRACE
    if "images" in names:
        tokens = np.full(6, 8)
        trace = replace(trace, image_tokens=tokens, images=np.ones(6, int))
    if "adapters" in names:
        trace = replace(trace, adapter=np.arange(6) % 2)
    if "turns" in names:
        parent = np.arange(6) - 2
        parent[:2] = -1
        trace = replace(
            trace,
            arrival_s=np.where(parent < 0, trace.arrival_s, np.nan),
            parent=parent,
            after=parent,
            prefix_tokens=np.where(parent < 0, 0, 20),
        )
    sides = deployment.side_by_side if deployment.split else (deployment,)
    for side in sides:
        simulation = simulate(trace, side, slo=parse_slo(["ttft=9s,tpot=1s"]))
        assert np.isfinite(simulation.table.finish_s).all()


def is_of_set(names) -> bool:
    """Return whether features are several capabilities of V1."""
    engine, beside = given(names)
    return is_set(engine, pulls="hand_off" in beside)


OF_SETS = [names for names in PAIRS if is_of_set(names)]


@pytest.mark.parametrize(
    "names", [names for names in PAIRS if names not in OF_SETS], ids="-".join
)
def test_two_features_run_or_are_refused_by_their_row(names):
    text = conflict_of(features(names))

    if text:
        ends = text.partition(" is not modelled")[2]
        with pytest.raises(
            InputError, match=r" is not modelled.*; expected "
        ) as raised:
            run(names)
        assert str(raised.value).endswith(ends)
    else:
        run(names)


@in_python
@pytest.mark.parametrize("names", OF_SETS, ids="-".join)
def test_a_set_runs_or_is_refused_by_its_row(names):
    test_two_features_run_or_are_refused_by_their_row(names)


@pytest.mark.thorough
def test_sets_run_or_are_refused_by_their_row_without_compilation():
    run_uncompiled(__file__)


ON_H200 = {"llm": "DeepSeek-R1", "gpu": "H200-SXM", "slo": "ttft=3s,tpot=60ms"}
OF_SETTINGS = {
    ("ranks", "latency_ms"): {"data_parallel_size": 8, "latency_ms": "9,0,0,0,0"},
    ("ranks", "solver"): {"data_parallel_size": 8, "solver": "mip"},
    ("stages", "solver"): {"pipeline_parallel_size": 2, "solver": "mip", "tp": 8},
    ("dcp", "other engine"): {
        "decode_context_parallel_size": 2,
        "engine": "sglang",
        "tp": 8,
    },
}
"""Settings of features that no deployment has."""


@pytest.mark.parametrize("row", OF_SETTINGS, ids="-".join)
def test_features_that_only_settings_have_are_refused_by_their_row(row):
    with pytest.raises(InputError, match=r"is not modelled.*; expected one of them"):
        raise_of(PlanSettings(**ON_H200, **OF_SETTINGS[row]))


def raise_of(settings: PlanSettings) -> None:
    """Raise why no configuration of the settings can be."""
    runnable(list(configurations(settings)))


VALUES = {
    "trace": "requests.csv",
    "workload": "sharegpt",
    "input_len": 100,
    "output_len": 100,
    "rate": 2,
    "scale": 2,
    "users": 5,
    "sessions": "5",
    "session_rate": "1/s",
    "arrivals": "poisson",
    "rates": "1,2",
    "draws": 5,
    "mix": True,
    "router": "jsq",
    "dispatcher": "aladdin",
    "solver": "mip",
    "rebalancer": "llumnix",
    "disaggregated": True,
    "availability": "99.9%",
    "max_nodes": "H100-SXM=2",
    "replicas": 2,
    "prefill_replicas": 1,
    "autoscaler": "hpa:target=9",
    "outage": "1@60s:60s",
    "rolling_update": "10m",
    "spot": "15%/month",
    "latency_ms": "9,0,0,0,0",
    "engine_overhead": "none",
    "latency_quantile": 0.9,
    "tier": "vllm-native:gib=4",
    "kv_offloading_size": 4,
    "host_kv_gib": 4,
    "pipeline_parallel_size": 2,
    "data_parallel_size": "1,8",
    "enable_expert_parallel": True,
    "stream": True,
    "predictor": "oracle",
    "attain_in": "1h",
    "extend": True,
    "backtest": "1.1[1.0,1.2]@Llama-3.1-8B/H100-SXM/tp1",
    "record_iterations": "iterations.csv",
    "trace_events": "events.json",
    "export_metrics": "metrics",
}
"""A value of each setting that goes with another one or does not."""
COMMANDS = (PlanSettings, SimulateSettings, CompareSettings)
TABLE = {(row.feature, row.beside) for row in conflicts()}


@pytest.mark.parametrize("pair", [*combinations(VALUES, 2)], ids="-".join)
def test_two_settings_are_taken_or_are_refused_by_their_row(pair):
    for command in COMMANDS:
        if not {*pair} <= {*command.model_fields}:
            continue
        asked = {name: VALUES[name] for name in pair}
        if "prefill_replicas" in pair:
            asked["decode_replicas"] = 1
        if {pair, pair[::-1]} & TABLE:
            with pytest.raises(SettingError, match=r"are both given.*; expected "):
                command(**asked)
        else:
            command(**asked)


def test_every_row_is_of_features_that_are_tried():
    tried = {
        row
        for row in TABLE
        if any({*row} <= {*features(names)} for names in PAIRS)
        or row in OF_SETTINGS
        or any({*row} <= {*VALUES} & {*each.model_fields} for each in COMMANDS)
    }

    assert tried == TABLE
    assert all(row.expected for row in conflicts())
