"""``capplan list``: every name that a setting takes, whole."""

import json
import re

import pytest

from capplan.cli.main import exit_code
from capplan.errors import InputError
from capplan.fleet.catalog import gpu_names
from capplan.fleet.nodes import nodes
from capplan.fleet.offer import KINDS as WAYS
from capplan.fleet.prices import catalog_offers
from capplan.llm.catalog import listed_names, llm
from capplan.planning.compare.systems import SYSTEMS
from capplan.report.exports import MODULES
from capplan.report.kind_rows import KIND_ROWS
from capplan.report.pages.kinds import KINDS, kind_page, names_of
from capplan.simulator.autoscalers import AUTOSCALERS
from capplan.simulator.hand_offs import HAND_OFFS
from capplan.simulator.rebalancers import REBALANCERS
from capplan.simulator.routers import ROUTERS
from capplan.simulator.schedulers import SCHEDULERS
from capplan.workload.catalog import shipped_workload_names

REGISTRIES = {
    "llms": listed_names(),
    "gpus": gpu_names(),
    "nodes": [node.name for node in nodes()],
    "ways-to-pay": WAYS,
    "workloads": shipped_workload_names(),
    "schedulers": SCHEDULERS,
    "routers": ROUTERS,
    "rebalancers": REBALANCERS,
    "hand-offs": HAND_OFFS,
    "autoscalers": AUTOSCALERS,
    "systems": SYSTEMS,
    "targets": MODULES,
}


@pytest.mark.parametrize("kind", REGISTRIES)
def test_a_kind_lists_all_names_of_its_registry(kind, capsys):
    exit_code(["list", kind, "--json"])

    listed = [row["name"] for row in json.loads(capsys.readouterr().out)["items"]]
    assert listed == list(REGISTRIES[kind])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", ["60", "80", "200"])
def test_no_name_is_cut_however_narrow_the_terminal(kind, width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", width)

    exit_code(["list", kind])

    shown = capsys.readouterr().out
    assert [name for name in names_of(kind) if f" {name} " not in shown] == []
    assert "more rows" not in shown
    assert "…" not in shown


@pytest.mark.parametrize("kind", KINDS)
def test_every_name_has_a_text_and_no_value_is_a_place_holder(kind):
    rows = kind_page(kind).values()["items"]

    assert all(row.get("what", "told") for row in rows)
    # Providers call nodes as they like.
    keys = {(row["name"], row.get("provider")) for row in rows}
    assert len(keys) == len(rows)


def test_policies_are_listed_without_importing_them_since_that_compiles():
    import sys

    before = {name for name in sys.modules if ".schedulers." in name}

    kind_page("schedulers")

    assert {name for name in sys.modules if ".schedulers." in name} == before


def test_without_a_kind_the_kinds_are_listed_with_their_flag_and_count(capsys):
    exit_code(["list", "--json"])

    rows = {row["kind"]: row for row in json.loads(capsys.readouterr().out)["kinds"]}
    assert list(rows) == list(KINDS)
    assert rows["gpus"]["flag"] == "--gpu"
    assert rows["routers"]["count"] == len(ROUTERS)


def test_every_flag_of_a_kind_is_one_of_a_command(capsys):
    flags = set()
    for command in ("plan", "autoscale", "compare", "simulate", "export"):
        exit_code([command, "--help-all"])
        flags |= set(re.findall(r"--[a-z][a-z-]*", capsys.readouterr().out))

    assert {row.flag for row in KIND_ROWS.values()} <= flags
    assert list(KIND_ROWS) == list(KINDS)


def test_an_unknown_kind_is_refused_with_the_nearest(capsys):
    code = exit_code(["list", "gpuz"])

    assert code == 2
    assert "did you mean gpus?" in capsys.readouterr().err
    with pytest.raises(InputError, match="expected one of llms"):
        kind_page("")


def test_a_node_has_its_price_on_demand_where_one_is_known(capsys):
    exit_code(["list", "nodes", "--json"])

    rows = json.loads(capsys.readouterr().out)["items"]
    priced = {
        (each.provider, each.node): each.usd_per_node_h
        for each in catalog_offers()
        if each.kind == "on-demand" and each.node
    }
    assert any(row["usd_per_h"] for row in rows)
    for row in rows:
        assert row["usd_per_h"] == priced.get((row["provider"], row["name"]))


@pytest.mark.parametrize(
    ("name", "checkpoint"),
    [
        ("Qwen3-32B-FP8", "Qwen/Qwen3-32B-FP8"),
        ("Qwen3-32B-FP8-dynamic", "RedHatAI/Qwen3-32B-FP8-dynamic"),
        ("Kimi-K2.5-NVFP4", "nvidia/Kimi-K2.5-NVFP4"),
        ("Qwen3.6-27B-NVFP4", "nvidia/Qwen3.6-27B-NVFP4"),
        ("DeepSeek-V4-Pro-FP8", "sgl-project/DeepSeek-V4-Pro-FP8"),
    ],
)
def test_checkpoints_in_other_precisions_stand_in_the_list(name, checkpoint, capsys):
    exit_code(["list", "llms", "--json"])

    items = json.loads(capsys.readouterr().out)["items"]
    (row,) = [row for row in items if row["name"] == name]
    assert row["checkpoint"] == checkpoint
    assert name in names_of("llms")  # as the shell completes it


def test_every_llm_of_the_list_is_found_by_its_name():
    assert all(llm(name).weight_bytes() for name in names_of("llms"))
