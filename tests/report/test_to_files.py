"""Files are checked before the work is done, and written all together."""

import pytest

from capplan.errors import InputError
from capplan.planning.settings.plan import PlanSettings, SimulateSettings
from capplan.report import to_files
from capplan.report.to_files import simulate


@pytest.fixture
def write_plan(plan, monkeypatch):
    """Write the plan of the fixture into a folder; return the paths."""
    monkeypatch.setattr(to_files, "compute_plan", lambda *_, with_load: plan)

    return lambda folder: to_files.plan(PlanSettings(out=folder))[1]


def test_a_plan_without_files_measures_what_the_fleet_sustains_as_well(
    plan, monkeypatch
):
    asked = []
    monkeypatch.setattr(
        to_files,
        "compute_plan",
        lambda *_, with_load: asked.append(with_load) or plan,
    )

    to_files.plan(PlanSettings())

    assert asked == [True]


FILES = ["bills.csv", "counts.csv", "explained.json", "lengths.csv", "plan.csv"]
FILES += [
    "plan.focus.csv",
    "plan.json",
    "plan.md",
    "report.html",
    "report.md",
    "throughput.csv",
]
FILES += ["traffic.csv", "ways.csv"]


def test_a_plan_is_its_files_and_nothing_else(write_plan, tmp_path):
    written = write_plan(tmp_path / "new" / "report")

    names = sorted(path.name for path in (tmp_path / "new" / "report").iterdir())
    assert names == FILES
    assert sorted(path.name for path in written) == names


def test_classes_are_a_file_that_a_plan_without_them_removes(
    plan, classed, monkeypatch, tmp_path
):
    def write(result):
        monkeypatch.setattr(to_files, "compute_plan", lambda *_, with_load: result)
        to_files.plan(PlanSettings(out=tmp_path))
        return sorted(path.name for path in tmp_path.iterdir())

    assert write(classed) == sorted(["classes.csv", *FILES])
    assert write(plan) == FILES


def test_a_plan_without_draws_leaves_none_of_an_earlier_one(
    plan, monkeypatch, tmp_path
):
    (tmp_path / "risk.csv").write_text("draw\n1\n")
    monkeypatch.setattr(to_files, "compute_plan", lambda *_, with_load: plan)

    to_files.plan(PlanSettings(out=tmp_path))

    assert not (tmp_path / "risk.csv").exists()


def test_a_workbook_is_written_when_asked_and_removed_when_not(
    plan, monkeypatch, tmp_path
):
    monkeypatch.setattr(to_files, "compute_plan", lambda *given, **more: plan)

    written = to_files.plan(PlanSettings(out=tmp_path, xlsx=True))[1]
    again = to_files.plan(PlanSettings(out=tmp_path, xlsx=True))[1]

    assert (tmp_path / "plan.xlsx").read_bytes()[:2] == b"PK"
    assert tmp_path / "plan.xlsx" in written
    assert written == again
    to_files.plan(PlanSettings(out=tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES


def test_a_workbook_without_a_folder_is_refused_before_the_plan(monkeypatch):
    monkeypatch.setattr(to_files, "compute_plan", lambda *given: pytest.fail("planned"))

    with pytest.raises(InputError, match="give --out DIR too"):
        to_files.plan(PlanSettings(xlsx=True))


def test_a_plan_without_a_cost_leaves_no_charges_of_an_earlier_one(
    plan, infeasible, monkeypatch, tmp_path
):
    for result in (plan, infeasible):
        monkeypatch.setattr(to_files, "compute_plan", lambda *_, of=result, **more: of)
        to_files.plan(PlanSettings(out=tmp_path))

    assert not (tmp_path / "plan.focus.csv").exists()


def test_the_same_plan_gives_the_same_bytes(write_plan, tmp_path):
    first = [path.read_bytes() for path in write_plan(tmp_path / "a")]
    second = [path.read_bytes() for path in write_plan(tmp_path / "b")]

    assert first == second


def test_a_folder_in_the_place_of_a_file_is_refused_at_the_door(tmp_path):
    settings = SimulateSettings(per_request=tmp_path)

    with pytest.raises(InputError, match="expected a file"):
        simulate(settings)


def test_a_file_in_a_folder_that_is_not_there_is_refused_at_the_door(tmp_path):
    settings = SimulateSettings(trace_events=tmp_path / "none" / "events.json")

    with pytest.raises(InputError, match="is not a folder"):
        simulate(settings)


def test_a_folder_that_cannot_be_written_is_refused_before_the_plan(
    tmp_path, monkeypatch
):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(
        to_files, "compute_plan", lambda *_, **__: pytest.fail("planned")
    )

    with pytest.raises(InputError, match="is a file; expected a folder"):
        to_files.plan(PlanSettings(out=tmp_path / "file"))


def test_a_run_writes_its_tables_and_its_files_and_names_them(small_settings, tmp_path):
    paths = {
        "record_iterations": str(tmp_path / "it.csv"),
        "per_request": str(tmp_path / "requests.csv"),
        "trace_events": str(tmp_path / "events.json"),
        "out": str(tmp_path / "out"),
    }

    _, written = simulate(small_settings.model_copy(update=paths))

    assert [path.name for path in written] == [
        *("it.csv", "requests.csv", "events.json"),
        *("simulation.json", "simulation.csv", "report.html", "report.md"),
    ]
    assert all(path.stat().st_size for path in written)


def test_without_names_of_files_nothing_is_written(small_settings):
    assert simulate(small_settings)[1] == ()
