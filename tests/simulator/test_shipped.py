"""Compiled code that a wheel brings is loaded where all fits, else it is compiled."""

import hashlib
import json
import os
import pickle
import subprocess
import sys

import pytest
from numba import config

from capplan.simulator import jit, shipped

FUNCTION = """
from numba import types
from capplan.simulator.jit import compiled

@compiled()
def _step(x):
    return 3 * x

@compiled(types.int64(types.int64))
def triple(x):
    return _step(x)
"""
SHIP = """
import sys
from pathlib import Path
from capplan.simulator import jit, shipped
import brought

shipped.ship(Path(sys.argv[1]), jit.DIGEST, jit.CALLED_BY_PYTHON)
"""
LOAD = """
import sys
from pathlib import Path
from numba.core import event
from capplan.simulator import shipped

shipped.FOLDER = Path(sys.argv[1])
compiling = event.RecordingListener()
event.register("numba:compile", compiling)
import brought

print(brought.triple(14), len(compiling.buffer) // 2)
"""
BIN = "brought.triple.bin"

pytestmark = pytest.mark.skipif(config.DISABLE_JIT, reason="nothing is compiled")


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Run code that can import the function, with a cache of its own."""
    home = tmp_path_factory.mktemp("home")
    (home / "brought.py").write_text(FUNCTION)

    def run(code, folder, cache="cache"):
        paths = os.pathsep.join((str(home), *sys.path))
        own = {"PYTHONPATH": paths, "XDG_CACHE_HOME": str(home / cache)}
        command = [sys.executable, "-c", code, str(folder)]
        done = subprocess.run(
            command, env={**os.environ, **own}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def folder(python, tmp_path_factory):
    """Return what was shipped of the function."""
    made = tmp_path_factory.mktemp("wheel") / "_compiled"
    python(SHIP, made)
    return made


def copied(folder, tmp_path):
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def with_content(folder, content, *, is_known):
    """Replace the function's file, and where ``is_known`` its SHA-256 as well."""
    (folder / BIN).write_bytes(content)
    if is_known:
        index = json.loads((folder / "index.json").read_text())
        index["sha256"]["brought.triple"] = hashlib.sha256(content).hexdigest()
        (folder / "index.json").write_text(json.dumps(index))


def test_what_was_shipped_is_loaded_and_nothing_is_written(python, folder, tmp_path):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    told = python(LOAD, folder, cache=f"unused{tmp_path.name}")

    assert told == "42 0\n"  # the result, and how many functions were compiled
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("damage", ["half", "another"])
def test_a_damaged_or_foreign_file_is_compiled_with_the_same_result(
    damage, is_known, python, folder, tmp_path
):
    copy = copied(folder, tmp_path)
    whole = (copy / BIN).read_bytes()
    content = {
        "half": whole[: len(whole) // 2],
        "another": pickle.dumps(([], (("name", "object", (b"", b"")),))),
    }[damage]
    with_content(copy, content, is_known=is_known)

    told = python(LOAD, copy, cache=f"{damage}{is_known}")

    assert told == "42 2\n"


def test_a_changed_byte_is_not_loaded(python, folder, tmp_path):
    copy = copied(folder, tmp_path)
    content = bytearray((copy / BIN).read_bytes())
    content[len(content) // 2] ^= 1
    with_content(copy, content, is_known=False)

    assert python(LOAD, copy, cache="changed") == "42 2\n"


@pytest.mark.parametrize("part", ["sources", "numba", "python"])
def test_another_stamp_is_refused(part, folder, tmp_path, monkeypatch):
    copy = copied(folder, tmp_path)
    monkeypatch.setattr(shipped, "FOLDER", copy)
    fits = shipped.sums(jit.DIGEST)
    index = json.loads((copy / "index.json").read_text())
    index["stamp"][part] += "1"
    (copy / "index.json").write_text(json.dumps(index))

    assert list(fits) == ["brought.triple"]
    assert shipped.sums(jit.DIGEST) == {}


def test_the_stamp_tells_python_its_system_and_its_machine(folder):
    stamp = json.loads((folder / "index.json").read_text())["stamp"]

    assert set(stamp) == {"sources", "numba", "python"}
    assert stamp["python"].endswith(".so")
    assert f"{sys.version_info[0]}{sys.version_info[1]}" in stamp["python"]


@pytest.mark.parametrize("index", ["", "[]", "{}", '{"stamp": {}}', "\0", None])
def test_an_index_that_says_nothing_ships_nothing(index, tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    if index is not None:
        (tmp_path / "index.json").write_text(index)

    assert shipped.sums(jit.DIGEST) == {}


def test_what_is_shipped_is_not_announced_as_to_be_compiled(monkeypatch, tmp_path):
    monkeypatch.setattr(jit, "cache_dir", lambda: tmp_path)
    cold = jit.is_cold(), jit.is_cold("vllm_v1"), jit.is_cold("sarathi")
    names = ("drivers.open_loop.run", "schedulers.vllm_v1.schedule")
    monkeypatch.setattr(
        jit, "_SHIPPED", {f"capplan.simulator.{name}": "" for name in names}
    )

    assert cold == (True, True, True)
    assert (jit.is_cold(), jit.is_cold("vllm_v1"), jit.is_cold("sarathi")) == (
        *(False, False),
        True,
    )


def test_a_plain_fleet_compiles_nothing_of_autoscalers_and_deaths():
    code = (
        "import sys, capplan.simulator.fleet.moving_fleet; "
        "print([name for name in sys.modules if name.endswith("
        "('.failing', '.observing', '.placing', 'rebalancers.llumnix', '.nixl'))])"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"


PACK = """
import sys
from pathlib import Path
from capplan.simulator import jit, shipped
import brought

Path(sys.argv[1]).write_bytes(shipped.packed(jit.DIGEST, jit.CALLED_BY_PYTHON))
"""
UNPACK = """
import sys
from pathlib import Path
from numba.core import event
from capplan.simulator import shipped

path = Path(sys.argv[1])
if "other" in path.name:
    shipped._cpu = lambda: "another CPU"
shipped.unpack(path.read_bytes(), path.with_suffix(""))
compiling = event.RecordingListener()
event.register("numba:compile", compiling)
import brought

print(brought.triple(14), len(compiling.buffer) // 2)
"""


@pytest.mark.thorough
def test_what_was_compiled_serves_processes_on_such_a_cpu_alone(python, tmp_path):
    alike, other = tmp_path / "alike.zip", tmp_path / "other.zip"
    python(PACK, alike)
    other.write_bytes(alike.read_bytes())

    found = python(UNPACK, alike, "empty"), python(UNPACK, other, "none")

    assert [text.split() for text in found] == [["42", "0"], ["42", "2"]]
