"""Run all tests on one day; leave out of the doctests what is not installed.

Prices age, so that what a plan says of them would change with the day.
"""

import os
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

os.environ["SOURCE_DATE_EPOCH"] = str(
    int(datetime(2026, 11, 20, tzinfo=UTC).timestamp())
)

collect_ignore = (
    []
    if find_spec("torch")
    else ["capplan/profiling/torch_backend.py", "capplan/profiling/torch_llm.py"]
)


_IMPORT_ALL = """
import importlib, pkgutil, sys
import capplan.simulator as package
names = [m.name for m in pkgutil.walk_packages(package.__path__, "capplan.simulator.")]
for name in names[:: int(sys.argv[1])]:
    importlib.import_module(name)
from capplan.simulator.drivers.one_pool import driver
from capplan.simulator.schedulers import scheduler
driver(moves=sys.argv[1] == "1")
flags = "ADAPTERS", "DRAFTS", "COPIES", "STATES", "IMAGES", "STAGES", "CADENCE"
names = ["vllm-v1-priority", *(f"vllm-v1+{flag}" for flag in flags)]
for name in names[:: int(sys.argv[1])]:
    scheduler(name).schedule
"""


def pytest_configure(config):
    """Compile the simulator before several workers would each compile all of it.

    From both ends: what one process has compiled the other finds in the cache. Files
    that are named need a part of it, or none.
    """
    if not getattr(config.option, "numprocesses", 0) or hasattr(config, "workerinput"):
        return
    if all(Path(name.partition("::")[0]).is_file() for name in config.args):
        return
    from capplan.simulator.jit import is_cold

    if is_cold():
        command = [sys.executable, "-c", _IMPORT_ALL]
        for process in [subprocess.Popen([*command, step]) for step in ("1", "-1")]:
            process.wait()


def pytest_collection_modifyitems(config, items):
    """Let workers begin with the files of thorough tests, and end with short files.

    For ``--no-loadscope-reorder``: xdist's order has the files of few tests last.
    """
    if hasattr(config, "workerinput"):
        thorough = {item.path for item in items if item.get_closest_marker("thorough")}
        count = Counter(item.path for item in items)
        items.sort(key=lambda item: (item.path not in thorough, -count[item.path]))
