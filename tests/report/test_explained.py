"""explained.json: what a result says by topic, read again and never believed."""

import copy
import io
import json

import pytest
from rich.console import Console

from capplan.cli.main import exit_code
from capplan.errors import InputError
from capplan.report.page import TOPICS
from capplan.report.pages.plan import plan_page
from capplan.report.received.explained import FILE, explained
from capplan.report.render.terminal import print_topic
from capplan.report.writers.page_files import write_page


@pytest.fixture(name="folder")
def folder_of(plan, tmp_path):
    write_page(plan_page(plan), tmp_path)
    return tmp_path


def told(page, topic):
    out = io.StringIO()
    print_topic(page, topic, Console(file=out, width=100, highlight=False))
    return out.getvalue()


@pytest.mark.parametrize("topic", [name for name in TOPICS if name != "assumptions"])
def test_a_topic_reads_the_same_from_the_file_as_from_the_plan(plan, folder, topic):
    read = told(explained(folder / "plan.json").page, topic)

    words = told(plan_page(plan), topic).split()
    assert read.split() == words


def test_the_command_prints_a_topic_and_refuses_another(folder, capsys):
    assert exit_code(["explain", str(folder), "count"]) == 0
    assert "lower bound" in capsys.readouterr().out

    assert exit_code(["explain", str(folder), "colour"]) == 2
    assert "expected count, peak, price" in capsys.readouterr().err


def test_a_changed_document_is_not_explained(folder):
    path = folder / "plan.json"
    path.write_text(path.read_text() + " ")

    with pytest.raises(InputError, match=r"another file than plan\.json"):
        explained(path)


def test_a_document_alone_says_what_is_missing(folder):
    (folder / FILE).unlink()

    with pytest.raises(InputError, match=r"no explained\.json lies beside it"):
        explained(folder)


def leaves(value, path=()):
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value[:2])
        for key, each in items:
            yield from leaves(each, (*path, key))
    yield path


def test_a_leaf_of_another_type_is_refused_in_one_line(folder):
    path = folder / FILE
    whole = json.loads(path.read_text())
    for place in leaves(whole):
        for wrong in (7, None, "x", [], {}):
            document = {"": copy.deepcopy(whole)}
            where, last = document, ""
            for key in place:
                where, last = where[last], key
            if isinstance(wrong, type(where[last])):
                continue
            where[last] = wrong
            path.write_text(json.dumps(document[""]))
            with pytest.raises(InputError) as refused:
                explained(folder)
            assert "\n" not in str(refused.value)
