"""Files are complete or absent."""

import gzip
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

import capplan
from capplan.errors import InputError
from capplan.files import check_folder, new_file, write_texts


def test_an_error_in_the_block_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("old")

    with suppress(ZeroDivisionError), new_file(path) as stream:
        stream.write("new")
        raise ZeroDivisionError

    assert [each.read_text() for each in tmp_path.iterdir()] == ["old"]


def test_the_same_text_compresses_to_the_same_bytes(tmp_path):
    for name in ("a.gz", "b.gz"):
        with new_file(tmp_path / name) as stream:
            stream.write("1,2\n")

    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()) == b"1,2\n"


def test_a_folder_in_the_place_of_a_file_leaves_the_others_unwritten(tmp_path):
    (tmp_path / "b.csv").mkdir()

    with pytest.raises(InputError, match=r"b\.csv: .*is a folder"):
        write_texts({"a.csv": "1", "b.csv": "2"}, tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["b.csv"]


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    real = tempfile.mkstemp

    def full(prefix, suffix, dir):
        if prefix.startswith(".b.csv"):
            raise OSError(28, os.strerror(28))
        return real(prefix=prefix, suffix=suffix, dir=dir)

    monkeypatch.setattr(tempfile, "mkstemp", full)

    with pytest.raises(InputError, match="No space left"):
        write_texts({"a.csv": "1", "b.csv": "2"}, tmp_path / "new")

    assert not (tmp_path / "new").exists()


def test_old_files_stay_when_new_ones_cannot_be_written(tmp_path, monkeypatch):
    write_texts({"a.csv": "old"}, tmp_path)

    def full(source, target):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InputError):
        write_texts({"a.csv": "new"}, tmp_path)

    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_a_file_in_the_place_of_the_folder_is_refused_at_the_door(tmp_path):
    (tmp_path / "out").write_text("")

    with pytest.raises(InputError, match="is a file; expected a folder"):
        check_folder(tmp_path / "out" / "deeper")


def test_written_files_can_be_read_by_others(tmp_path):
    umask = os.umask(0o022)
    try:
        (path,) = write_texts({"a.csv": "1"}, tmp_path)
    finally:
        os.umask(umask)

    assert Path(path).stat().st_mode & 0o777 == 0o644


KILLED = """
import os, signal, sys
from capplan.files import new_file
with new_file(sys.argv[1]) as stream:
    stream.write("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed_by_the_next_that_writes_there(tmp_path):
    path = tmp_path / "plan.json"
    command = [sys.executable, "-c", KILLED, str(path)]
    killed = subprocess.run(command, cwd=Path(capplan.__file__).parents[1])
    (orphan,) = tmp_path.iterdir()
    others = [".plan.json.abc", "notes.capplan-tmp", ".x.capplan-tmp"]
    for name in others:
        (tmp_path / name).write_text("of the user")

    with new_file(path) as stream:
        beside = {each.name for each in tmp_path.iterdir()} - set(others)
        write_texts({"simulation.json": "whole"}, tmp_path)  # keeps that of a live one
        stream.write("whole")

    assert killed.returncode == -9
    assert orphan.name not in beside
    assert len(beside) == 1
    left = {each.name for each in tmp_path.iterdir()}
    assert left == {*others, "plan.json", "simulation.json"}
    assert path.read_text() == "whole"


def test_a_folder_with_a_nul_in_its_name_is_refused():
    with pytest.raises(InputError, match="holds a NUL"):
        check_folder("out\0")
