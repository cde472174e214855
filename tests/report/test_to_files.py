"""Files are checked before the work is done, and written all together."""

import pytest

from capplan.errors import InputError
from capplan.planning.settings import SimulateSettings
from capplan.report.to_files import simulate, write_plan


def test_a_plan_is_three_files_and_nothing_else(plan, tmp_path):
    written = write_plan(plan, tmp_path / "new" / "report")

    names = sorted(path.name for path in (tmp_path / "new" / "report").iterdir())
    assert names == ["plan.csv", "plan.json", "report.html"]
    assert sorted(path.name for path in written) == names


def test_the_same_plan_gives_the_same_bytes(plan, tmp_path):
    first = [path.read_bytes() for path in write_plan(plan, tmp_path / "a")]
    second = [path.read_bytes() for path in write_plan(plan, tmp_path / "b")]

    assert first == second


def test_a_folder_in_the_place_of_a_file_is_refused_at_the_door(tmp_path):
    settings = SimulateSettings(per_request=tmp_path)

    with pytest.raises(InputError, match="expected a file"):
        simulate(settings)


def test_a_file_in_a_folder_that_is_not_there_is_refused_at_the_door(tmp_path):
    settings = SimulateSettings(trace_events=tmp_path / "none" / "events.json")

    with pytest.raises(InputError, match="is not a folder"):
        simulate(settings)
