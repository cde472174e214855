"""An installed vLLM still schedules as the one that was recorded.

Runs where ``vllm`` can be imported, or where ``CAPPLAN_VLLM_PYTHON`` names a Python
that can.
"""

import importlib.util
import os
import sys

import pytest
from compare import DATA, difference, record
from recorded import read

TAGS = ["just_fits_a0", "just_fits_a1", "groups_a1", "turns_a1"]


def python_with_vllm() -> str:
    named = os.environ.get("CAPPLAN_VLLM_PYTHON")
    if named:
        return named
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vllm is not installed and CAPPLAN_VLLM_PYTHON names no Python")
    return sys.executable


@pytest.mark.vllm
def test_the_installed_engine_schedules_as_the_recorded_one(tmp_path):
    record(python_with_vllm(), TAGS, tmp_path)

    found = [difference(read(DATA, tag), read(tmp_path, tag)) for tag in TAGS]

    assert found == [""] * len(TAGS)
