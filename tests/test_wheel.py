"""The wheel's compiled code: installed elsewhere, read-only, nothing is compiled."""

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from numba import config

ROOT = Path(__file__).parents[1]
PLAN = "plan --workload sharegpt --rate 20 --llm Llama-3.1-8B --gpu H100-SXM --slo"
PLAN = [*PLAN.split(), "ttft=1s,tpot=50ms"]  # README's first plan
SIMULATE = ["simulate", *PLAN[1:], "--tp", "1", "--replicas", "2", "--format", "json"]
RUN = """
import sys
from numba.core import event

compiling = event.RecordingListener()
event.register("numba:compile", compiling)
import capplan, numba
from capplan.cli.main import exit_code

code = exit_code(sys.argv[1:])
told = capplan.__file__, numba.__version__, len(compiling.buffer) // 2
print(*told, sep="\\n", file=sys.stderr)
sys.exit(code)
"""

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(
        config.DISABLE_JIT or sysconfig.get_platform() != "linux-x86_64",
        reason="nothing is compiled for a wheel",
    ),
]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return a folder with what the wheel installs, read-only; CI_WHEEL names one."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    if built := os.environ.get("CI_WHEEL"):
        wheel = Path(built)
    else:
        environment = {**os.environ, "HATCH_BUILD_NO_HOOKS": "false"}
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d"]
        subprocess.run([*command, str(folder)], cwd=ROOT, env=environment, check=True)
        (wheel,) = folder.glob("*.whl")
    python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    assert wheel.name.endswith(f"-{python}-{python}-manylinux_2_17_x86_64.whl")
    zipfile.ZipFile(wheel).extractall(folder / "elsewhere")
    for path in (folder / "elsewhere").rglob("*"):
        path.touch()
        path.chmod(0o555 if path.is_dir() else 0o444)
    return folder / "elsewhere"


def run(arguments, tmp_path, *paths):
    """Run a command on an empty cache; return what it printed, and what ``RUN`` did."""
    cache = tmp_path / "cache"
    paths = map(str, (*paths, *(path for path in sys.path if path != str(ROOT))))
    own = {"PYTHONPATH": os.pathsep.join(paths), "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", RUN, *arguments],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **own},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    *_, place, numba, compiled = done.stderr.splitlines()
    written = [path for path in cache.rglob("*") if path.is_file()]
    return done.stdout, Path(place), numba, int(compiled), written


@pytest.mark.parametrize("more", [[], ["--tp", "1", "--disaggregated"]])
def test_a_first_plan_from_the_wheel_compiles_and_writes_nothing(
    installed, tmp_path, more
):
    out, compiled_out = tmp_path / "out", tmp_path / "compiled"
    unused = tmp_path / "cache" / "capplan" / ("0" * 12)  # of an older version
    unused.mkdir(parents=True)
    (unused / "open_loop.run-1.nbc").touch()
    os.utime(unused, (0, 0))
    _, place, _, compiled, written = run(
        [*PLAN, *more, "--out", str(out)], tmp_path, installed
    )
    subprocess.run(
        [sys.executable, "-m", "capplan", *PLAN, *more, "--out", str(compiled_out)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )

    assert place.is_relative_to(installed)
    assert (compiled, written) == (0, [])
    assert (out / "plan.json").read_bytes() == (compiled_out / "plan.json").read_bytes()


def test_with_another_numba_all_is_compiled_to_the_same_result(installed, tmp_path):
    other = os.environ.get("CI_OTHER_NUMBA")
    if not other:
        pytest.skip("CI_OTHER_NUMBA names no folder with another numba")

    shipped, *_, numba, none, _ = run(SIMULATE, tmp_path, installed)
    told, place, other_numba, compiled, written = run(
        SIMULATE, tmp_path, installed, other
    )

    assert numba != other_numba
    assert place.is_relative_to(installed)
    assert none == 0
    assert compiled > 50
    assert written
    assert json.loads(told) == json.loads(shipped)
