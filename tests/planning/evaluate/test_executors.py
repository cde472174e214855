"""Candidates are worked on side by side, and what goes wrong is told of them."""

import json
import os
import pickle
import sys
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

from capplan.cli.main import exit_code
from capplan.errors import CapplanError, CapplanWarning, InputError
from capplan.planning.evaluate.executors import EXECUTORS, executor

COST = "--latency-ms 10,0.05,0,0.1,0.0001 --kv-blocks 2000 --max-num-seqs 64"
PLAN = (
    "plan --workload sharegpt --rate 1 --llm Llama-3.1-8B --gpu H100-SXM,L40S "
    f"--slo ttft=1s,tpot=30ms {COST}"
)
WAYS = [
    pytest.param(name, marks=[pytest.mark.slow] if name == "ray" else [])
    for name in sorted(EXECUTORS)
]


def times(factor, number):
    return factor * number


def dies_with_input_error(shared, task):
    raise InputError(f"{task} is wrong")


def fails_once(folder, task):
    mark = folder / str(task)
    if not mark.exists():
        mark.touch()
        raise ArithmeticError("first time")
    return task


def always_fails(shared, task):
    raise ArithmeticError("every time")


def dies_once(folder, task):
    mark = folder / str(task)
    if task == 2 and not mark.exists():
        mark.touch()
        os._exit(1)
    return task


def always_dies(shared, task):
    if task == 2:
        os._exit(1)
    return task


def warns(shared, task):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CapplanWarning)
        warnings.warn(f"of {task}", CapplanWarning, stacklevel=1)
    return tuple(str(each.message) for each in caught)


@pytest.fixture(scope="module")
def cluster():
    """Return the address of a Ray of two workers, started for these tests."""
    ray = pytest.importorskip("ray")
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    # Workers cannot import a test module: send its functions whole.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    node = {
        "num_cpus": 2,
        "object_store_memory": 100 * 2**20,
        "include_dashboard": False,
    }
    started = cluster_utils.Cluster(initialize_head=True, head_node_args=node)
    yield started.address
    started.shutdown()


@pytest.fixture
def address(request):
    """Return what to pass as the address of an executor by its name."""
    return lambda name: request.getfixturevalue("cluster") if name == "ray" else None


@pytest.mark.parametrize("name", WAYS)
def test_answers_come_in_the_order_of_the_tasks(name, address):
    with executor(name, address(name)) as workers:
        first = workers(times, 10, [3, 1, 2])
        second = workers(times, 2, range(20))

    assert first == [30, 10, 20]
    assert second == list(range(0, 40, 2))


@pytest.mark.parametrize("name", WAYS)
def test_wrong_input_is_told_as_it_is(name, address):
    with (
        executor(name, address(name)) as workers,
        pytest.raises(InputError, match=r"^H100 is wrong$"),
    ):
        workers(dies_with_input_error, None, ["H100"])


@pytest.mark.parametrize("name", WAYS)
def test_a_task_that_fails_is_tried_once_more(name, address, tmp_path):
    with executor(name, address(name)) as workers:
        answers = workers(fails_once, tmp_path, [1, 2, 3])

    assert answers == [1, 2, 3]


@pytest.mark.parametrize("name", WAYS)
def test_a_task_that_fails_twice_is_told_with_its_candidate(name, address):
    with (
        executor(name, address(name)) as workers,
        pytest.raises(CapplanError, match=r"H100: failed twice: .*every time"),
    ):
        workers(always_fails, None, ["H100"])


@pytest.mark.parametrize("name", WAYS)
def test_what_a_worker_warns_of_comes_back_with_its_answer(name, address):
    with executor(name, address(name)) as workers:
        answers = workers(warns, None, ["A", "B"])

    assert answers == [("of A",), ("of B",)]


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced_once(cluster, tmp_path):
    with executor("ray", cluster) as workers:
        answers = workers(dies_once, tmp_path, [1, 2, 3])

    assert answers == [1, 2, 3]


@pytest.mark.slow
def test_a_worker_that_dies_twice_is_told_with_its_candidate(cluster):
    with (
        executor("ray", cluster) as workers,
        pytest.raises(CapplanError, match=r"^2: the worker died twice: WorkerCrashed"),
    ):
        workers(always_dies, None, [1, 2, 3])


@pytest.mark.slow
def test_a_ray_that_was_running_before_is_left_running(cluster):
    import ray

    ray.init(address=cluster, log_to_driver=False)
    try:
        with executor("ray") as workers:
            answers = workers(times, 10, [1, 2])

        assert answers == [10, 20]
        assert ray.is_initialized()
    finally:
        ray.shutdown()


@pytest.mark.slow
def test_ray_gives_the_same_plan_as_threads(cluster, tmp_path, capsys):
    local, remote = tmp_path / "local", tmp_path / "ray"

    codes = [
        exit_code(f"{PLAN} --out {local}".split()),
        exit_code(
            f"{PLAN} --out {remote} --executor ray --ray-address {cluster}".split()
        ),
    ]

    capsys.readouterr()
    assert codes == [0, 0]
    for name in ("plan.csv", "plan.json"):
        assert (local / name).read_bytes() == (remote / name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("where", ["auto", "127.0.0.1:1", "ray://127.0.0.1:1"])
def test_a_ray_cluster_that_is_not_there_is_one_line(where, capsys, monkeypatch):
    ray = pytest.importorskip("ray")
    assert not ray.is_initialized()
    if where == "auto":
        # Whatever runs on this machine, there is nothing at this address.
        monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")

    code = exit_code([*PLAN.split(), "--executor", "ray", "--ray-address", where])

    error = capsys.readouterr().err
    assert code == 2
    assert error.count("\n") == 1
    assert "no Ray cluster answers" in error


@pytest.mark.thorough
class FakeRay:
    """A Ray of this process, whose threads print as the real one's do."""

    class exceptions:
        class RayTaskError(Exception):
            """A task that failed."""

        class RayError(Exception):
            """A worker that died."""

    def __init__(self, failure=None, dies=False):
        self.failure, self.dies, self.is_shut_down = failure, dies, False

    def is_initialized(self):
        return False

    def init(self, **given):
        if self.failure is not None:
            raise self.failure

    def shutdown(self):
        self.is_shut_down = True

    def cluster_resources(self):
        return {"CPU": 2.0}

    cloudpickle = pickle

    def put(self, value):
        return value

    def remote(self, **given):
        return lambda work: SimpleNamespace(remote=lambda *given: (work, given))

    def get(self, sent):
        print("(raylet) A worker died or was killed while executing a task")
        if self.dies:
            raise self.exceptions.RayError
        work, given = sent
        return work(*given)


def with_fake(monkeypatch, **given):
    fake = FakeRay(**given)
    monkeypatch.setitem(sys.modules, "ray", fake)
    return fake


def test_the_json_is_alone_on_standard_output_when_a_ray_worker_dies(
    capsys, monkeypatch
):
    fake = with_fake(monkeypatch)

    code = exit_code([*PLAN.split(), "--executor", "ray", "--format", "json"])

    shown = capsys.readouterr()
    assert code == 0
    assert json.loads(shown.out)["status"] == "feasible"
    assert "A worker died" in shown.err
    assert fake.is_shut_down


def test_a_ray_worker_that_dies_twice_leaves_standard_output_empty(capsys, monkeypatch):
    fake = with_fake(monkeypatch, dies=True)

    code = exit_code([*PLAN.split(), "--executor", "ray", "--format", "json"])

    shown = capsys.readouterr()
    assert (code, shown.out) == (2, "")
    assert "the worker died twice" in shown.err
    assert fake.is_shut_down


@pytest.mark.parametrize(
    "failure",
    [
        Exception("The current node timed out during startup."),
        AssertionError(),
        KeyError("gcs"),
    ],
)
def test_a_ray_that_cannot_start_is_one_line(failure, capsys, monkeypatch):
    with_fake(monkeypatch, failure=failure)

    code = exit_code([*PLAN.split(), "--executor", "ray"])

    assert code == 2
    assert "no Ray cluster answers" in capsys.readouterr().err


def test_ray_that_is_not_installed_is_one_line(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)

    code = exit_code([*PLAN.split(), "--executor", "ray"])

    assert code == 2
    assert "install it with pip install 'capplan[ray]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("slurm", None), "--executor is 'slurm'; expected one of local, ray"),
        (("local", "auto"), "--ray-address is given without --executor ray"),
    ],
)
def test_what_cannot_be_asked_is_refused(given, expected):
    with pytest.raises(InputError, match=expected), executor(*given):
        pass


def test_threads_work_side_by_side():
    both = threading.Barrier(2, timeout=30)
    if (os.cpu_count() or 1) < 2:
        pytest.skip("one processor: one thread")

    with executor("local") as workers:
        answers = workers(lambda barrier, task: barrier.wait() >= 0, both, [1, 2])

    assert answers == [True, True]


WEEK = (
    "what-if --workload azure-week-like --llm Llama-3.1-8B --gpu H100-SXM,L40S --tp 1 "
    "--slo ttft=1s,tpot=40ms --rate x1,x2,x4,x8 --attainment 0.99,0.995"
)


def worker_seconds():
    """Return the processor time of each worker of Ray on this machine, by process."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            if (path.parent / "cmdline").read_text().startswith("ray::"):
                fields = path.read_text().rpartition(")")[2].split()
                ticks = int(fields[11]) + int(fields[12])
                found[path.parent.name] = ticks / os.sysconf("SC_CLK_TCK")
        except OSError:  # it has ended
            continue
    return found


@pytest.mark.slow
def test_two_workers_share_the_plans_of_a_week_and_find_the_same_ones(
    cluster, tmp_path, capsys
):
    local, remote = tmp_path / "local", tmp_path / "ray"
    assert exit_code(f"{WEEK} --out {local}".split()) == 0
    before = worker_seconds()
    at = f"--executor ray --ray-address {cluster}"

    with executor("ray", cluster):  # whose workers stay until the end
        assert exit_code(f"{WEEK} --out {remote} {at}".split()) == 0
        spent = {pid: s - before.get(pid, 0.0) for pid, s in worker_seconds().items()}

    capsys.readouterr()
    for name in ("whatif.json", "whatif.csv"):
        assert (local / name).read_bytes() == (remote / name).read_bytes()
    print({pid: round(s, 1) for pid, s in spent.items()})
    assert sum(spent.values()) >= 1.6 * max(spent.values())


@pytest.mark.slow
def test_a_worker_that_compiled_nothing_gets_the_compiled_simulator(
    tmp_path, capsys, monkeypatch
):
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    empty = tmp_path / "cache"
    node = {"num_cpus": 1, "object_store_memory": 100 * 2**20}
    node |= {"include_dashboard": False, "env_vars": {"XDG_CACHE_HOME": str(empty)}}
    there = cluster_utils.Cluster(initialize_head=True, head_node_args=node)

    try:
        at = f"--executor ray --ray-address {there.address}"
        code = exit_code([*PLAN.split(), *at.split()])
    finally:
        there.shutdown()

    capsys.readouterr()
    assert code == 0
    assert not [*empty.rglob("*.nbc")]
