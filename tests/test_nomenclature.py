import csv
import re
from dataclasses import fields
from pathlib import Path

import pytest

import capplan
from capplan.bounds.cost_bound import CostBound
from capplan.deployment.cold_start import ColdStart
from capplan.deployment.engine import EngineSettings
from capplan.deployment.memory import MemoryBudget
from capplan.deployment.pools import Pool
from capplan.deployment.replica import Replica
from capplan.deployment.split import SizeBand
from capplan.fleet.gpu import Gpu
from capplan.fleet.nodes import Node
from capplan.fleet.offer import Offer
from capplan.fleet.price import Price
from capplan.latency.contract import LatencyTables
from capplan.llm.architecture import Architecture
from capplan.llm.layout import Layout
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.classes import ClassResult
from capplan.planning.evaluate.probe import Probe
from capplan.planning.load.traffic_over_time import Lengths, Traffic
from capplan.planning.mix.result import KindCapacity, Mix, MixBand, MixPool
from capplan.planning.money.cost import Cost, CostLine, NodeCount
from capplan.planning.plan.purchase import CountCost, Purchase, Way
from capplan.planning.plan.result import Assumption, DraftsTried, DraftsWorth, Plan
from capplan.planning.plan.spare_nodes import NodesGone, SpareNodes
from capplan.planning.plan.throughput import Throughput
from capplan.planning.risk.draws import Draw, DrawnInput
from capplan.planning.risk.result import (
    CountShare,
    DrawnPlan,
    Risk,
    RiskLevel,
    Swing,
    Worth,
)
from capplan.planning.size.search import TpOption, TpRow, TpSearch
from capplan.report.fields import declared
from capplan.report.pages.candidates import ASKED
from capplan.report.pages.system_columns import AT_RATES
from capplan.report.pages.system_columns import COLUMNS as SYSTEM_COLUMNS
from capplan.report.writers.requests import REQUEST_COLUMNS
from capplan.report.writers.schedule import ITERATION_COLUMNS
from capplan.simulator.autoscalers.view import Known, View
from capplan.simulator.results.times import Series

FILE = Path(capplan.__file__).parent / "nomenclature.csv"

TABLES = (Gpu, Node, Offer, Price, Architecture, MemoryBudget, EngineSettings, Replica)
TABLES += (Layout, Pool, Cost, CostLine, NodeCount, TpOption, TpRow, TpSearch)
TABLES += (Candidate, Plan, Probe, Series, Assumption, ClassResult, ColdStart, Known)
TABLES += (Traffic, Lengths, Throughput, Purchase, Way, CountCost)
TABLES += (Risk, RiskLevel, CountShare, DrawnInput, DrawnPlan, Draw)
TABLES += (SpareNodes, NodesGone, Swing, Worth)
TABLES += (DraftsTried, DraftsWorth)
TABLES += (Mix, MixPool, MixBand, KindCapacity, CostBound, SizeBand)

UNITS = {"_s": ("s", "s/token", "s/token²"), "_bytes": ("bytes",), "_w": ("W",)}
UNITS |= {"_tokens": ("tokens",)}


def rows():
    with FILE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_name_stands_once_with_its_meaning_and_source():
    names = [row["name"] for row in rows()]

    assert len(set(names)) == len(names)
    assert all(row["meaning"] and row["source"] for row in rows())
    assert not [row["name"] for row in rows() if None in row], "a comma is not quoted"


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
def test_every_field_of_a_result_is_in_the_nomenclature(table):
    known = {row["name"] for row in rows()}

    assert {field.name for field in fields(table)} - known == set()


@pytest.mark.parametrize(
    "names",
    [
        [*ASKED, "capplan_version"],
        [column.name for column in (*SYSTEM_COLUMNS, *AT_RATES)],
        ITERATION_COLUMNS,
        REQUEST_COLUMNS,
        LatencyTables._fields,
        View._fields,
    ],
)
def test_every_column_of_a_file_is_in_the_nomenclature(names):
    known = {row["name"] for row in rows()}

    assert set(names) - known == set()


@pytest.mark.parametrize("table", declared())
def test_every_declared_field_is_in_the_nomenclature(table):
    known = {row["name"] for row in rows()}
    names = {
        name
        for row in declared()[table]
        for name in (row.name, *row.ends)
        if name and not name.startswith("*")
    }
    of_ends = {row.name for row in declared()[table] if "ends" in row.layout.split()}

    assert names - of_ends - known == set()


def test_every_table_of_fields_is_on_a_page():
    code = "".join(
        path.read_text(encoding="utf-8")
        for path in (FILE.parent / "report").rglob("*.py")
    )
    rows = [row for table in declared().values() for row in table]
    parts = {row.name[1:] for row in rows if row.name.startswith("*")}
    parts |= {name for row in rows for name in re.findall(r"as=(\w+)", row.layout)}

    on_pages = set(re.findall(r'fields\(\s*"(\w+)"', code))

    assert {*declared()} == on_pages | parts


def test_a_name_ends_in_its_unit():
    wrong = [
        row["name"]
        for row in rows()
        for ending, units in UNITS.items()
        if row["name"].endswith(ending) and "per_" not in row["name"]
        if row["unit"] not in units
    ]

    assert wrong == []
