"""Run all tests on one day; leave out of the doctests what is not installed.

Prices age, so that what a plan says of them would change with the day.
"""

import os
import subprocess
import sys
from datetime import UTC, datetime
from importlib.util import find_spec

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
driver(moves=sys.argv[1] == "1")
"""


def pytest_configure(config):
    """Compile the simulator before several workers would each compile all of it.

    From both ends: what one process has compiled the other finds in the cache.
    """
    if not getattr(config.option, "numprocesses", 0) or hasattr(config, "workerinput"):
        return
    from capplan.simulator.jit import is_cold

    if is_cold():
        command = [sys.executable, "-c", _IMPORT_ALL]
        for process in [subprocess.Popen([*command, step]) for step in ("1", "-1")]:
            process.wait()
