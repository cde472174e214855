"""The Dockerfile, as far as it can be run without Docker: its RUN lines, by bash."""

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PLACES = ("/source", "/opt/", "/work", "/var/cache")


def lines(word):
    return re.findall(rf"^{word} (.*)$", DOCKERFILE, re.MULTILINE)


def test_only_what_a_wheel_is_built_of_is_sent_to_docker():
    sent = [
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]

    assert [name for name in sent if not (ROOT / name).exists()] == []
    assert {"capplan", "profiles", "workloads", "pyproject.toml"} <= {*sent}


def test_it_runs_as_a_user_of_its_own_and_answers_as_the_command():
    assert lines("USER") == ["capplan"]
    assert DOCKERFILE.rstrip().endswith('ENTRYPOINT ["capplan"]')
    assert DOCKERFILE.index("\nUSER") > DOCKERFILE.rindex("\nRUN")


@pytest.mark.slow
def test_its_run_lines_make_an_installation_that_answers(tmp_path):
    """The wheel is pure, and the packages that it needs are those of the tests."""
    pytest.importorskip("hatchling")
    sent = (ROOT / ".dockerignore").read_text().splitlines()
    for name in (line[1:] for line in sent if line.startswith("!")):
        to = tmp_path / "source" / name
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        to.parent.mkdir(exist_ok=True)
        copy(ROOT / name, to)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("useradd", "chown"):  # of the machine that runs the tests
        (tools / name).write_text("#!/bin/sh\n")
        (tools / name).chmod(0o755)
    own = {"PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_QUIET": "2"}
    paths = sysconfig.get_paths()
    environment = {
        **os.environ,
        **own,
        "HATCH_BUILD_NO_HOOKS": "true",
        "PATH": f"{tools}:{paths['scripts']}:{os.environ['PATH']}",
        "PYTHONPATH": paths["purelib"],
    }

    for line in lines("RUN"):
        for place in PLACES:
            line = re.sub(rf"(?<![\w.]){place}", f"{tmp_path}{place}", line)
        subprocess.run(["bash", "-euc", line], env=environment, check=True)
    search = "search --workload sharegpt --llm Llama-3.1-8B --slo tpot=30ms"
    done = subprocess.run(
        [tmp_path / "opt/capplan/bin/capplan", *search.split()],
        cwd=tmp_path / "work",
        env=environment,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    told = [tmp_path / "opt/capplan/bin/python", "-c", "import capplan; print(capplan)"]
    where = subprocess.run(
        told, cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert str(tmp_path / "opt/capplan/lib") in where.stdout
