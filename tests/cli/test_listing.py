"""``capplan list``: every name that a setting takes, whole."""

import json
import re

import pytest

from capplan.cli.main import exit_code
from capplan.errors import InputError
from capplan.fleet.catalog import gpu_names
from capplan.llm.catalog import llm_names
from capplan.planning.systems import SYSTEMS
from capplan.report.pages.kinds import KINDS, kind_page, names_of
from capplan.simulator.autoscalers import AUTOSCALERS
from capplan.simulator.hand_offs import HAND_OFFS
from capplan.simulator.rebalancers import REBALANCERS
from capplan.simulator.routers import ROUTERS
from capplan.simulator.schedulers import SCHEDULERS
from capplan.workload.catalog import shipped_workload_names

REGISTRIES = {
    "llms": llm_names(),
    "gpus": gpu_names(),
    "workloads": shipped_workload_names(),
    "schedulers": SCHEDULERS,
    "routers": ROUTERS,
    "rebalancers": REBALANCERS,
    "hand-offs": HAND_OFFS,
    "autoscalers": AUTOSCALERS,
    "systems": SYSTEMS,
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
    words = set(re.split(r"\s+", shown))
    assert set(names_of(kind)) <= words
    assert "more rows" not in shown
    assert "…" not in shown


@pytest.mark.parametrize("kind", KINDS)
def test_every_name_has_a_text_and_no_value_is_a_place_holder(kind):
    rows = kind_page(kind).values()["items"]

    assert all(row.get("what", "told") for row in rows)
    assert len({row["name"] for row in rows}) == len(rows)


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
    for command in ("plan", "autoscale", "compare", "simulate"):
        exit_code([command, "--help"])
        flags |= set(re.findall(r"--[a-z][a-z-]*", capsys.readouterr().out))

    assert {kind.flag for kind in KINDS.values()} <= flags


def test_an_unknown_kind_is_refused_with_the_nearest(capsys):
    code = exit_code(["list", "gpuz"])

    assert code == 2
    assert "did you mean gpus?" in capsys.readouterr().err
    with pytest.raises(InputError, match="expected one of llms"):
        kind_page("")
