"""Tests of V1's schedule with sets of capabilities, run in Python.

To compile a set takes ten times as long as a few short cases in Python, so that most
such tests are ``slow`` and run here, in one process for a file.
"""

import os
import subprocess
import sys

import pytest

from capplan.deployment.engine import EngineSettings
from capplan.simulator.schedulers.v1_policy import scheduler_name

IN_PYTHON = [pytest.mark.slow, pytest.mark.uncompiled]


def in_python(test):
    """Mark a test."""
    return pytest.mark.slow(pytest.mark.uncompiled(test))


def is_set(engine: EngineSettings, *, pulls: bool = False) -> bool:
    """Return whether an engine has several capabilities beside V1's."""
    name = scheduler_name(engine, pulls=pulls)
    return name.count("+") + name.count("priority") > 1


def run_uncompiled(file: str, *chosen: str) -> None:
    """Run the tests so marked of a file, or those ``chosen``; all must pass."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]

    done = subprocess.run(
        [*command, "-m", "uncompiled", *chosen, file],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout[-3000:]
