"""What cannot be simulated is refused in one line that says why."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest
from numba import config

from capplan.deployment.engine import EngineSettings
from capplan.errors import InputError, ProfileError
from capplan.latency.contract import linear_tables
from capplan.simulator import jit
from capplan.simulator.checks import oversized
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

LIMITS = EngineSettings(
    max_num_batched_tokens=64, max_num_seqs=8, block_size=16, kv_blocks=5
)
TABLES = linear_tables(1e-2, 1e-4, 0.0, 1e-4, 0.0, max_batch=8, max_tokens=64)


def trace_of(prompt_tokens, output_tokens, **columns):
    n = len(prompt_tokens)
    return Trace(
        prompt_tokens,
        output_tokens,
        np.arange(n, dtype=float),
        source="a.csv",
        **columns,
    )


def test_a_request_that_only_just_fits_is_served():
    simulation = simulate(trace_of([60], [5]), fleet_of(TABLES, LIMITS, 1))

    assert simulation.completed == 1


def test_a_request_one_token_too_long_is_named():
    trace = trace_of([10, 60, 61], [5, 5, 5])

    with pytest.raises(InputError, match=r"a\.csv: 1 requests fit no .* row 3 with 61"):
        simulate(trace, fleet_of(TABLES, LIMITS, 1))

    assert oversized(trace, LIMITS).tolist() == [False, False, True]


def test_a_request_longer_than_the_engine_takes_is_named():
    engine = EngineSettings(
        max_num_batched_tokens=64, max_num_seqs=8, kv_blocks=9, max_model_len=50
    )

    with pytest.raises(InputError, match="takes 50"):
        simulate(trace_of([46], [5]), fleet_of(TABLES, engine, 1))


def test_a_trace_without_times_is_refused():
    with pytest.raises(InputError, match="no arrival times"):
        simulate(Trace([1], [1]), fleet_of(TABLES, LIMITS, 1))


def test_no_replica_is_refused():
    with pytest.raises(InputError, match="replicas is 0; expected >= 1"):
        simulate(trace_of([1], [1]), fleet_of(TABLES, LIMITS, 0))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_num_batched_tokens", 0),
        ("max_num_seqs", 0),
        ("block_size", 0),
        ("kv_blocks", 1),
    ],
)
def test_limits_that_hold_nothing_are_refused(name, value):
    with pytest.raises(InputError, match=f"{name} is {value}; expected"):
        EngineSettings(**{name: value})


def test_a_token_budget_below_the_batch_is_refused():
    engine = EngineSettings(max_num_batched_tokens=7, max_num_seqs=8, kv_blocks=5)

    with pytest.raises(InputError, match="max_num_batched_tokens is 7; expected"):
        simulate(trace_of([1], [1]), fleet_of(TABLES, engine, 1))


@pytest.mark.parametrize("kind", ["router", "scheduler"])
def test_an_unknown_policy_is_answered_with_those_there_are(kind):
    known = {"router": "jsq", "scheduler": "vllm-v1"}[kind]

    with pytest.raises(InputError, match=f"'lifo'.*{known}"):
        simulate(trace_of([1], [1]), fleet_of(TABLES, LIMITS, 1, **{kind: "lifo"}))


@pytest.mark.parametrize("name", ["decode_s", "fused_s", "decode_context_s"])
@pytest.mark.parametrize("value", [-1e-3, np.nan, np.inf])
def test_a_cost_that_is_no_time_is_refused(name, value):
    table = getattr(TABLES, name).copy()
    table[3] = value

    with pytest.raises(ProfileError, match=rf"{name}\[3\] is"):
        simulate(
            trace_of([1], [1]), fleet_of(TABLES._replace(**{name: table}), LIMITS, 1)
        )


@pytest.mark.parametrize("name", ["attention_s", "request_s"])
@pytest.mark.parametrize("value", [-1e-3, np.nan])
def test_a_scalar_cost_that_is_no_time_is_refused(name, value):
    with pytest.raises(ProfileError, match=f"{name} is"):
        simulate(
            trace_of([1], [1]), fleet_of(TABLES._replace(**{name: value}), LIMITS, 1)
        )


def test_tables_that_end_before_the_limits_are_refused():
    engine = EngineSettings(max_num_batched_tokens=64, max_num_seqs=9, kv_blocks=5)

    with pytest.raises(ProfileError, match="decode_s ends at 8; expected 9"):
        simulate(trace_of([1], [1]), fleet_of(TABLES, engine, 1))


CACHE = """
import os, sys, warnings

full = sys.argv[1:]

def reserve(file, start, length):
    where = os.readlink(f"/proc/self/fd/{file}")
    if any(where.startswith(each) for each in full):
        raise OSError(28, "No space left on device")

os.posix_fallocate = reserve
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from capplan.simulator.jit import cache_dir
    folder = cache_dir()
print(folder.is_dir(), *(w.message for w in caught))
"""


def cache(tmp_path, home, *full):
    return subprocess.run(
        [sys.executable, "-c", CACHE, *map(str, full)],
        env={**os.environ, "XDG_CACHE_HOME": str(home), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )


def test_a_cache_directory_that_cannot_be_written_is_replaced_and_named(tmp_path):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")

    done = cache(tmp_path, in_the_way)

    assert done.stdout.startswith("True cannot write the compile cache")
    assert f"using {tmp_path}" in done.stdout


def test_a_cache_on_a_full_disk_is_replaced_and_named(tmp_path):
    home = tmp_path / "home"

    done = cache(tmp_path, home, home)

    assert done.stdout.startswith("True cannot write the compile cache")
    assert f"(No space left on device); using {tmp_path}" in done.stdout


def test_without_room_for_a_cache_anywhere_the_folder_to_set_is_named(tmp_path):
    done = cache(tmp_path, tmp_path / "home", tmp_path)

    assert done.stderr.splitlines()[-1].startswith("capplan.errors.InputError: cannot")
    assert "set XDG_CACHE_HOME to a folder with room for 32 MiB" in done.stderr


@pytest.mark.skipif(config.DISABLE_JIT, reason="nothing is compiled")
def test_a_start_with_a_compiled_simulator_reserves_no_room(tmp_path):
    # Compiles what is not compiled yet.
    simulate(trace_of([60], [5]), fleet_of(TABLES, LIMITS, 1))
    (run,) = {path.name for path in jit.cache_dir().rglob("open_loop.run-*.nbc")}
    compiled = tmp_path / "home" / "capplan" / jit.cache_dir().name / "drivers_1" / run
    compiled.parent.mkdir(parents=True)
    compiled.touch()

    done = cache(tmp_path, tmp_path / "home", tmp_path)

    assert not jit.is_cold()
    assert done.stdout == "True\n", done.stderr


def test_caches_of_versions_that_nobody_starts_are_deleted(tmp_path):
    caches = tmp_path / "home" / "capplan"
    unused, used, other = (caches / x for x in ("0" * 12, "f" * 12, "notes"))
    for folder in (unused, used, other):
        (folder / "drivers_1").mkdir(parents=True)
        (folder / "drivers_1" / "open_loop.run-1.nbc").touch()
    for folder, days in ((unused, 15), (used, 13), (other, 400)):
        os.utime(folder, (time.time() - days * 86400,) * 2)

    done = cache(tmp_path, tmp_path / "home")

    assert done.stdout == "True\n", done.stderr
    own = jit.cache_dir().name
    assert {each.name for each in caches.iterdir()} == {own, used.name, other.name}
    assert time.time() - (caches / own).stat().st_mtime < 86400
