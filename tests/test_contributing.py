"""What CONTRIBUTING.md and the README show, works as shown."""

import importlib.util
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from capplan.cli.main import exit_code
from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import Deployment
from capplan.fleet.gpu import Gpu
from capplan.latency.contract import linear_tables
from capplan.simulator import autoscalers, hand_offs, rebalancers, routers
from capplan.simulator.laws.checking import check_laws
from capplan.simulator.simulate import simulate
from capplan.workload import readers
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

ROOT = Path(__file__).resolve().parent.parent
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


@pytest.fixture
def worked(tmp_path, monkeypatch):
    """Return a function that puts a file of CONTRIBUTING.md into a package."""

    def put(package, name):
        block = re.search(
            rf"```python\n(# capplan/\S+/{name}\.py\n.*?)```", CONTRIBUTING, re.DOTALL
        )
        assert block is not None
        path = tmp_path / f"{name}.py"
        path.write_text(block.group(1))
        full_name = f"{package.__name__}.{name}"
        spec = importlib.util.spec_from_file_location(full_name, path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, full_name, module)
        spec.loader.exec_module(module)

    return put


def test_the_router_of_the_worked_example_sends_to_the_least_prefill(
    worked, monkeypatch
):
    worked(routers, "least_prefill")
    monkeypatch.setitem(routers.ROUTERS, "least-prefill", "least_prefill")
    engine = EngineSettings(kv_blocks=200, max_num_seqs=8, max_num_batched_tokens=512)
    tables = linear_tables(0.01, 1e-4, 0, 1e-3, 0, max_batch=8, max_tokens=512)
    trace = Trace(np.array([2000, 10, 10]), np.array([50, 5, 5]), np.arange(3) * 1e-3)

    served = simulate(trace, fleet_of(tables, engine, 2, router="least-prefill"))

    assert served.times.replica.tolist() == [0, 1, 1]


def small(replica_count, **more):
    """Return a fleet of iterations of 0.01 s, and 0.1 ms for a prompt token."""
    engine = EngineSettings(
        kv_blocks=200, max_num_seqs=8, max_num_batched_tokens=512, **more
    )
    tables = linear_tables(0.01, 1e-4, 0, 1e-3, 0, max_batch=8, max_tokens=512)
    return fleet_of(tables, engine, replica_count, router="round-robin")


def test_the_rebalancer_of_the_worked_example_evens_out_what_runs(worked, monkeypatch):
    worked(rebalancers, "even_out")
    monkeypatch.setitem(rebalancers.REBALANCERS, "even-out", "even_out")
    outputs = np.array([400, 2, 400, 2])  # the third has less KV than the first
    trace = Trace(np.full(4, 50), outputs, np.arange(4) * 1e-3)

    served = simulate(trace, replace(small(2), rebalancer="even-out:block=1ms"))

    assert served.table.migrations.tolist() == [0, 0, 1, 0]
    assert served.table.replica.tolist() == [0, 1, 1, 1]


def test_the_hand_off_of_the_worked_example_computes_long_prompts_apart(
    worked, monkeypatch
):
    worked(hand_offs, "long_prompts")
    monkeypatch.setitem(hand_offs.HAND_OFFS, "long-prompts", "long_prompts")
    trace = Trace(np.array([511, 512]), np.array([5, 5]), np.array([0.0, 1.0]))
    pools = 2 * small(1).pools

    served = simulate(
        trace, Deployment(pools, "jsq", hand_off="long-prompts:block=1ms")
    )

    assert (served.table.handed_s > 0).tolist() == [False, True]


def test_the_autoscaler_of_the_worked_example_gives_each_its_target(
    worked, monkeypatch
):
    worked(autoscalers, "each_so_many")
    monkeypatch.setitem(autoscalers.AUTOSCALERS, "each-so-many", "each_so_many")
    trace = Trace(np.full(20, 50), np.full(20, 400), np.arange(20) * 1e-3)
    scaled = "each-so-many:target=2,period=1s,max=5"

    served = simulate(trace, replace(small(1), autoscaler=scaled))

    assert served.replica_count == 5


@pytest.mark.thorough
def test_the_scheduler_of_the_worked_example_admits_the_shortest_and_is_lawful(
    tmp_path,
):
    block = re.search(
        r"```python\n(# shortest_prompt\.py\n.*?)```", CONTRIBUTING, re.DOTALL
    )
    path = tmp_path / "shortest_prompt.py"
    path.write_text(block.group(1))
    engine = EngineSettings(64, 1, kv_blocks=200, async_scheduling=False)
    tables = linear_tables(0.01, 1e-4, 0, 1e-3, 0, max_batch=8, max_tokens=512)
    trace = Trace(np.array([40, 30, 20]), np.array([5, 5, 5]), np.arange(3) * 1e-3)

    served = simulate(trace, fleet_of(tables, engine, 1, scheduler=str(path)))

    assert np.argsort(served.times.scheduled_s).tolist() == [0, 2, 1]
    later = Trace(np.array([40, 30, 20, 10]), np.full(4, 5), np.arange(4) * 0.02)
    for settings, order in {"": [0, 2, 3, 1], ":patience=1": [0, 2, 1, 3]}.items():
        fleet = fleet_of(tables, engine, 1, scheduler=f"{path}{settings}")
        served = simulate(later, fleet)
        assert np.argsort(served.times.scheduled_s).tolist() == order
    assert check_laws(str(path), 40).broken == ()


def test_the_reader_of_the_worked_example_is_chosen_and_reads(
    worked, monkeypatch, tmp_path
):
    worked(readers, "gateway")
    first = {"gateway": "gateway", **readers.READERS}
    monkeypatch.setattr(readers, "READERS", first)
    path = tmp_path / "access.log"
    path.write_text("at_ms,t_in,t_out\n0,10,5\n1500,20,7\n")

    trace = readers.read_trace(path)

    assert trace.arrival_s.tolist() == [0.0, 1.5]
    assert trace.prompt_tokens.tolist() == [10, 20]
    assert trace.output_tokens.tolist() == [5, 7]


def test_the_gpu_of_the_worked_example_is_a_row_of_the_catalog():
    row = next(line for line in CONTRIBUTING.splitlines() if line.startswith("A30,"))
    header = (ROOT / "capplan/fleet/data/gpus.csv").read_text().splitlines()[0]
    cells = dict(zip(header.split(","), row.split(","), strict=True))
    texts = ("name", "architecture", "source", "confidence", "note")

    gpu = Gpu(
        **{k: v if k in texts else (float(v) if v else None) for k, v in cells.items()}
    )

    assert gpu.name == "A30"
    assert gpu.source


@pytest.mark.parametrize(
    "page", ["README.md", "docs/start/first_plan.md", "docs/reference/commands.md"]
)
def test_every_flag_that_the_first_pages_show_is_one(page):
    from capplan.calibration.settings import FitSettings
    from capplan.planning.compare.settings import CompareSettings
    from capplan.planning.settings.plan import PlanSettings, SimulateSettings

    text = (ROOT / page).read_text(encoding="utf-8")
    text = re.sub(r"`(?:python|capplan verify|capplan check)[^`]*`", "", text)
    shown = set(re.findall(r"--(?:\[no-\])?([a-z][a-z-]+)", text))
    # Of every command, and of capplan itself.
    others = {"help", "format", "quiet", "install-completion", "resume", "from", "to"}
    others |= {
        "fail-above",
        "slo-scale",
        "json",
        "explain",
        "help-all",
        "debug",
        "actual",
    }

    commands = (PlanSettings, SimulateSettings, CompareSettings, FitSettings)
    names = {name for command in commands for name in command.model_fields}
    known = {name.replace("_", "-") for name in names}

    assert shown - others - known == set()


@pytest.fixture
def first_own_plan():
    """Return the words of the README's first command for a trace of one's own."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    command = re.search(r"bin/capplan (plan --trace (?:.*\\\n)*.*)", text)
    assert command is not None
    return command.group(1).replace("\\\n", " ").split()


def test_the_file_that_the_readmes_first_command_names_is_there(first_own_plan):
    assert (ROOT / first_own_plan[2]).is_file()


@pytest.mark.thorough
def test_the_readmes_first_command_works_as_typed_in_a_checkout(
    first_own_plan, tmp_path, monkeypatch
):
    monkeypatch.chdir(ROOT)
    assert first_own_plan[-2:] == ["--out", "out"]

    code = exit_code([*first_own_plan[:-1], str(tmp_path / "out"), "--quiet"])

    assert code == 0
    assert (tmp_path / "out" / "plan.json").is_file()


def test_every_path_that_the_documents_link_is_there():
    for document in ["README.md", "CONTRIBUTING.md", "capplan/README.md"]:
        folder = (ROOT / document).parent
        for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / document).read_text()):
            assert (folder / target).exists(), f"{document}: {target}"


@pytest.mark.parametrize("document", ["capplan/README.md", "CONTRIBUTING.md"])
def test_every_file_that_the_map_names_is_there(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    text = text.partition("## What to add where")[2].partition("\n## ")[0] or text

    for path in re.findall(r"`((?:\w+/)+\w*(?:\.py|\.csv)?)`", text):
        places = (ROOT, ROOT / "capplan", ROOT / "capplan" / "planning")
        assert any((place / path).exists() for place in places), path
