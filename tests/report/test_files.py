"""The three files of a plan."""

from capplan.report.files import write_plan


def test_a_plan_is_three_files_and_nothing_else(plan, tmp_path):
    written = write_plan(plan, tmp_path / "new" / "report")

    names = sorted(path.name for path in (tmp_path / "new" / "report").iterdir())
    assert names == ["plan.csv", "plan.json", "report.html"]
    assert sorted(path.name for path in written) == names


def test_the_same_plan_gives_the_same_bytes(plan, tmp_path):
    first = [path.read_bytes() for path in write_plan(plan, tmp_path / "a")]
    second = [path.read_bytes() for path in write_plan(plan, tmp_path / "b")]

    assert first == second
