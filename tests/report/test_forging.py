"""Whatever one value of a received file becomes, no command ends unforeseen.

Nothing is executed, and no file is opened but those that may be. ``forging.py`` draws
for longer.
"""

import json
import random

import pytest

from tests.report import forging

pytestmark = pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("above") / "received"


@pytest.fixture(scope="module")
def documents(folder):
    """The files that are changed, where commands run."""
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield forging.make(folder)


def test_files_as_they_were_made_are_taken(documents, folder):
    for name in ("plan", "budget", "autoscale"):
        assert forging.answer(f"verify {name}.json")[0] == 0
    assert forging.wrong(folder, "verify FILE", json.dumps(documents["plan"])) == ""


def check(documents, folder, count, seed):
    drawn = forging.draws(documents, random.Random(seed))
    with forging.patched():
        for kind, where, value, sealed in (next(drawn) for _ in range(count)):
            text = forging.forged(documents[kind], where, value, sealed)
            for command in forging.COMMANDS[kind]:
                why = forging.wrong(folder, command, text)
                assert why == "", (command, kind, where, value, sealed)


def test_a_value_of_another_type_is_one_line(documents, folder):
    check(documents, folder, count=12, seed=0)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(1, 2))
def test_many_values_of_other_types_are_one_line(documents, folder, seed):
    check(documents, folder, count=20, seed=seed)


@pytest.mark.thorough
def test_every_setting_of_another_type_is_one_line(documents, folder):
    values = (["./evil.py"], {"evil.py": 1}, None, True, 1e308, "./evil.py", "1e999")
    with forging.patched():
        for kind, document in documents.items():
            names = {*document["settings"], "scheduler", "prices", "profiles"}
            for place, name in enumerate(sorted(names)):
                value = values[place % len(values)]
                where = ("settings", name)
                text = forging.forged(document, where, value, sealed=True)
                why = forging.wrong(folder, "verify FILE", text)
                assert why == "", (kind, name, value)


def test_a_file_that_is_opened_or_executed_is_seen(documents, folder):
    with forging.watched(allowed=[folder / "own.csv"]) as seen:
        (folder / "own.csv").read_bytes()
        (folder / "evil.csv").read_bytes()
        exec(compile("1", str(folder / "evil.py"), "exec"))

    assert seen == [str(folder / "evil.csv"), f"executed: {folder / 'evil.py'}"]
