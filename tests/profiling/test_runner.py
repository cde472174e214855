"""Profiling from start to end, killed, resumed and failing, on a lawful engine."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import yaml

from capplan.errors import InputError
from capplan.latency.profile_file import load_profile
from capplan.profiling.backend import EngineRequest
from capplan.profiling.fitted import fit_measured
from capplan.profiling.parent import EngineProcess
from capplan.profiling.point_file import PointFile
from capplan.profiling.runner import profile
from capplan.profiling.scenes import Point
from capplan.profiling.settings import ProfileSettings


def quietly(tp, done, total, text):
    assert 0 <= done <= total


def settings(lawful, out, *tp, resume=False, **engine):
    return ProfileSettings(
        llm="models/llm-7b",
        tp=tp or (1,),
        out=out,
        backend=lawful,
        density="coarse",
        engine_arg=engine,
        resume=resume,
    )


def rows_of(measured):
    with PointFile(measured.points_path) as points:
        return points.rows


def test_every_point_is_measured_by_the_law(lawful, law, tmp_path):
    (measured,) = profile(settings(lawful, tmp_path), quietly)

    rows = rows_of(measured)
    assert measured.failure is None
    assert measured.points_path == tmp_path / "H100-SXM" / "llm-7b" / "tp1.csv"
    assert len(rows) == measured.point_count > 40
    assert {row.point.phase for row in rows} == {"prefill", "decode", "mixed"}
    for row in rows:
        assert row.seconds == pytest.approx(law.law_s(row.point))


def test_the_record_says_what_was_measured_and_how(lawful, tmp_path):
    (measured,) = profile(settings(lawful, tmp_path, 2), quietly)

    record = yaml.safe_load(measured.record_path.read_text())
    assert record["status"] == "complete"
    assert record["engine"]["device"] == "NVIDIA H100 80GB HBM3"
    assert record["engine"]["kv_bytes_per_token"] == 65536.0
    assert record["points"] == measured.point_count
    # Two all-reduces in each of four layers, of an iteration of a bit over 2 ms.
    one, share = record["all_reduce"][0], 8 * 1.001e-5 / 2.03e-3
    assert one["tokens"] == 1
    assert one["seconds"] == pytest.approx(1.001e-5)
    assert one["share_of_shortest_decode"] == pytest.approx(share, rel=0.01)


def test_the_profile_fitted_at_the_end_is_the_law(lawful, law, tmp_path):
    (measured,) = profile(settings(lawful, tmp_path), quietly)

    fitted = load_profile(fit_measured(measured, tmp_path))

    assert (fitted.gpu, fitted.llm, fitted.tp) == ("H100-SXM", "llm-7b", 1)
    assert fitted.how == "measured"
    assert fitted.kv_tokens == 1024 * 16
    tables = fitted.tables(16, 512)
    expected_s = law.law_s(Point("decode", 8, 8, 1000))
    found_s = tables.decode_s[8] + tables.decode_context_s[8] * 8 * 1000
    assert found_s == pytest.approx(expected_s, rel=0.01)


def test_a_tp_degree_that_fails_leaves_the_others(lawful, tmp_path):
    failed, measured = profile(settings(lawful, tmp_path, 3, 2), quietly)

    record = yaml.safe_load(failed.record_path.read_text())
    assert "attention heads (8) must be divisible" in failed.failure
    assert "divides the attention heads" in failed.advice
    assert record["status"] == "failed"
    assert record["failure"]["reason"] == failed.failure
    assert measured.failure is None
    assert measured.point_count > 40


def test_scenes_that_fail_are_left_out_and_said(lawful, tmp_path):
    (measured,) = profile(settings(lawful, tmp_path, refuse="decode"), quietly)

    assert {row.point.phase for row in rows_of(measured)} == {"prefill"}
    assert any("out of memory in this scene" in why for _, why in measured.skipped)


def test_an_engine_that_dies_keeps_what_was_measured(lawful, tmp_path):
    # 15 scenes, twice each in groups of 8: the 20th is in the second group.
    (measured,) = profile(settings(lawful, tmp_path, die_at=20), quietly)

    assert "the cache grew too large" in measured.failure
    assert 0 < measured.point_count == len(rows_of(measured))


def test_points_that_are_there_are_not_overwritten(lawful, tmp_path):
    (measured,) = profile(settings(lawful, tmp_path), quietly)
    before = measured.points_path.read_bytes()

    with pytest.raises(InputError, match="add --resume"):
        profile(settings(lawful, tmp_path), quietly)

    assert measured.points_path.read_bytes() == before


def test_a_complete_profile_is_not_measured_again(lawful, tmp_path):
    journal = tmp_path / "journal"
    (first,) = profile(settings(lawful, tmp_path / "p"), quietly)

    again = settings(lawful, tmp_path / "p", resume=True, journal=str(journal))
    (second,) = profile(again, quietly)

    assert not journal.exists()
    assert second.point_count == first.point_count


def test_another_engine_does_not_go_on_with_a_profile(lawful, tmp_path):
    profile(settings(lawful, tmp_path, die_at=20), quietly)

    with pytest.raises(InputError, match="backend_version was 1 and is 2"):
        profile(settings(lawful, tmp_path, resume=True, version="2"), quietly)


def test_a_failed_start_does_not_forget_the_engine_of_the_points(lawful, tmp_path):
    profile(settings(lawful, tmp_path, die_at=20), quietly)
    (failed,) = profile(
        settings(lawful, tmp_path, resume=True, fail_load="no GPU"), quietly
    )

    with pytest.raises(InputError, match="backend_version was 1 and is 2"):
        profile(settings(lawful, tmp_path, resume=True, version="2"), quietly)

    assert failed.failure == "ValueError: no GPU"
    assert failed.point_count > 0


def test_a_cache_that_is_smaller_on_the_next_start_keeps_the_plan(lawful, tmp_path):
    (whole,) = profile(settings(lawful, tmp_path / "whole"), quietly)
    profile(settings(lawful, tmp_path / "p", die_at=20), quietly)

    (measured,) = profile(
        settings(lawful, tmp_path / "p", resume=True, kv_blocks=1020), quietly
    )

    points = {row.point for row in rows_of(measured)}
    assert points == {row.point for row in rows_of(whole)}


RUN = """
import json, sys
from capplan.profiling.runner import profile
from capplan.profiling.settings import ProfileSettings
out, backend, llm, gpu, options = sys.argv[1:]
settings = ProfileSettings(
    llm=llm, out=out, backend=backend, gpu=gpu or None, density="coarse",
    engine_arg=json.loads(options), resume=True,
)
profile(settings, lambda *progress: None)
"""


def test_a_killed_run_goes_on_without_measuring_a_point_twice(lawful, tmp_path):
    out, first, second = tmp_path / "p", tmp_path / "first", tmp_path / "second"
    path = out / "H100-SXM" / "llm-7b" / "tp1.csv"

    def command(journal, pause_s):
        options = json.dumps({"journal": str(journal), "pause_s": pause_s})
        return [sys.executable, "-c", RUN, str(out), lawful, "llm-7b", "", options]

    killed = subprocess.Popen(command(first, 0.02), start_new_session=True)
    while not path.exists() or path.read_bytes().count(b"\n") < 6:
        assert killed.poll() is None, "the run ended before it could be killed"
        time.sleep(0.01)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    kept = {row.point for row in rows_of_path(path)}
    with open(path, "a") as file:
        file.write("decode,1,1,99")  # as if killed within a line
    subprocess.run(command(second, 0), check=True)

    rows = rows_of_path(path)
    again = {Point(*json.loads(line)) for line in second.read_text().splitlines()}
    assert len(rows) == len({row.point for row in rows})
    assert {row.point for row in rows} > kept
    # A long prompt passes over chunks that shorter ones have measured.
    assert not {each for each in again & kept if each[3] == 0 or each[0] != "prefill"}
    (whole,) = profile(settings(lawful, tmp_path / "whole"), quietly)
    assert {row.point for row in rows} == {row.point for row in rows_of(whole)}


def rows_of_path(path):
    with PointFile(path) as points:
        return points.rows


@pytest.mark.parametrize("resume", [True, False])
def test_a_run_is_refused_while_an_engine_measures_into_its_folder(
    resume, lawful, tmp_path
):
    folder = tmp_path / "H100-SXM" / "llm-7b"
    folder.mkdir(parents=True)
    with EngineProcess(lawful, EngineRequest("llm", 1, {}), tmp_path / "log") as alive:
        alive.load()
        alive.move_log(folder / "tp1.log")

        with pytest.raises(InputError, match=r"tp1.log: an engine process \(\d+ at 20"):
            profile(settings(lawful, tmp_path, resume=resume), quietly)

        assert [path.name for path in folder.iterdir()] == ["tp1.log"]
        assert list(tmp_path.glob(".*")) == []
    profile(settings(lawful, tmp_path, resume=resume), quietly)
