"""``capplan ci`` on a repository of its own, and before a server that plays GitHub."""

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

from capplan.cli.main import exit_code
from capplan.report.change_comment import MARK

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
SCENARIO = """\
trace: log.csv
rate: {rate}
llm: Llama-3.1-8B
gpu: H100-SXM
tp: 1
latency_ms: [10, 0.05, 0, 0.1, 0.0001]
kv_blocks: 2000
max_num_seqs: 8
price: {{H100-SXM: {usd}}}
slo: {{ttft: 1s, tpot: 30ms}}
"""
VARIABLES = "SCENARIO BASE FAIL_ABOVE FAIL_IF COMMENT COMMENT_ABOVE PRICE_DATE ARGS"
VARIABLES += " PULL_REQUEST CI_MERGE_REQUEST_IID GITHUB_TOKEN GITLAB_TOKEN"
VARIABLES += " GITHUB_OUTPUT GITHUB_STEP_SUMMARY GITHUB_API_URL GITHUB_GRAPHQL_URL"
VARIABLES += " GITHUB_REPOSITORY"


def git(folder, *words):
    identity = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
    done = subprocess.run(
        ["git", *identity, *words], cwd=folder, check=True, capture_output=True
    )
    return done.stdout.decode().strip()


def write(folder, name="chat.yaml", rate=20, usd=2, more=""):
    (folder / "capacity").mkdir(exist_ok=True)
    log = ["arrival_s,prompt_tokens,output_tokens"]
    log += [f"{0.05 * at:.2f},{100 + at % 7},{20 + at % 5}" for at in range(400)]
    (folder / "capacity" / "log.csv").write_text("\n".join(log) + "\n")
    text = SCENARIO.format(rate=rate, usd=usd) + more
    (folder / "capacity" / name).write_text(text)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Plans of all tests, so that each is made once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository whose only commit has capacity/chat.yaml, at 20 requests/s."""
    folder = tmp_path / "repository"
    folder.mkdir()
    write(folder)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "base")
    monkeypatch.chdir(folder)
    for name in VARIABLES.split():
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def ci(repository, cache, tmp_path, capsys):
    """Run the command; return exit code, comment, outputs and what was said."""

    def run(*flags, pattern="capacity/*.yaml", base="main"):
        out = tmp_path / "out"
        based = ["--base", base] if base else []
        words = [pattern, *based, "--cache", str(cache), "--out", str(out), *flags]
        code = exit_code(["ci", *words, "--format", "json"])
        told = capsys.readouterr()
        text = (out / "comment.md").read_text() if (out / "comment.md").exists() else ""
        outputs = json.loads(told.out)["outputs"] if told.out else {}
        return code, text, outputs, told.err

    return run


def usd(gpus, usd_per_h=2):
    return f"${gpus * usd_per_h * 730:,}"


def test_a_rise_is_told_with_its_cause_and_fails_above_the_limit(ci, repository):
    write(repository, rate=40)

    code, text, outputs, said = ci("--fail-above", "10%")

    before, after = text.split("| H100-SXM GPUs | ")[1].split(" | ")[:2]
    rise = 100 * (int(after) / int(before) - 1)
    lines = text.splitlines()
    assert int(after) > int(before)
    assert code == 4
    assert lines[0] == MARK
    assert f"{usd(int(before))} → {usd(int(after))} (+{rise:.3g} %)" in lines[1]
    assert lines[2].startswith(
        f"**Rent {after} H100-SXM GPUs** instead of {before}. The peak holds"
    )
    assert lines[2].endswith("**Check fails: more than +10 %.**")
    assert "`rate` 20 → 40" in text
    assert outputs["usd-per-month"] == f"{int(after) * 2 * 730:.2f}"
    assert outputs["usd-change"] == f"{(int(after) - int(before)) * 2 * 730:.2f}"
    assert (outputs["gpu"], outputs["gpus"]) == ("H100-SXM", after)
    assert "the check fails: more than +10 %" in said


def test_a_rise_below_a_limit_in_dollars_passes(ci, repository):
    write(repository, rate=40)

    assert ci("--fail-above", "$900000")[0] == 0
    assert ci("--fail-above", "$1")[0] == 4


def test_the_files_of_both_plans_are_kept(ci, repository, tmp_path):
    write(repository, rate=40)

    ci()

    plans = tmp_path / "out" / "capacity" / "chat.yaml"
    rates = [
        json.loads((plans / below / "plan.json").read_text())["rate_per_s"]
        for below in ("before", "")
    ]
    assert rates == [20, 40]
    assert (
        "capplan plan capacity/chat.yaml --out out" in (plans / "plan.md").read_text()
    )
    assert (plans / "report.html").exists()


def test_what_did_not_change_says_so_with_prices_of_one_day(ci):
    code, text, outputs, _ = ci("--fail-above", "0%")

    assert code == 0
    assert text.splitlines()[1].startswith("### No change: $")
    assert (outputs["usd-change"], outputs["percent-change"]) == ("0.00", "0.0")


def test_without_a_base_there_is_only_the_plan(ci):
    code, text, outputs, said = ci("--fail-above", "10%", base="")

    assert code == 0
    assert text.splitlines()[1].startswith("### Rent ")
    assert outputs["usd-change"] == ""
    assert "--fail-above 10 % has no effect" in said


def test_a_new_scenario_and_a_removed_one_are_rows(ci, repository):
    write(repository, "code.yaml", rate=40)
    (repository / "capacity" / "chat.yaml").unlink()

    code, text, _, _ = ci()

    rows = [line for line in text.splitlines() if line.startswith("| capacity/")]
    assert code == 0
    assert rows[0].startswith("| capacity/chat.yaml | $")
    assert "| removed |" in rows[0]
    assert rows[1].startswith("| capacity/code.yaml |  | $")
    assert "is removed." in text


def test_a_peak_that_misses_fails_unless_told_otherwise(ci, repository):
    scenario = repository / "capacity" / "chat.yaml"
    scenario.write_text(scenario.read_text().replace("tpot: 30ms", "tpot: 5ms"))

    code, text, outputs, _ = ci()
    lenient, *_ = ci("--fail-if", "none")

    assert (code, lenient) == (4, 0)
    assert outputs["peak"] == "misses"
    assert "capacity/chat.yaml misses its limits" in text


def test_a_base_that_a_shallow_clone_lacks_is_fetched(
    ci, repository, tmp_path, monkeypatch
):
    base = git(repository, "rev-parse", "HEAD")
    write(repository, rate=40)
    git(repository, "commit", "-qam", "twice the traffic")
    clone = tmp_path / "clone"
    shallow = ["clone", "-q", "--depth=1", f"file://{repository}", str(clone)]
    git(tmp_path, *shallow)
    monkeypatch.chdir(clone)

    code, text, _, _ = ci(base=base)

    assert code == 0
    assert "`rate` 20 → 40" in text


def test_from_a_folder_within_the_repository_its_scenarios_are_compared(
    ci, repository, monkeypatch
):
    write(repository, rate=40)
    monkeypatch.chdir(repository / "capacity")

    _, text, _, _ = ci(pattern="*.yaml")

    assert "| chat.yaml | before" in text
    assert "`rate` 20 → 40" in text


def test_a_base_that_cannot_be_planned_is_not_the_changes_fault(ci, repository):
    write(repository, more="colour: red\n")
    git(repository, "commit", "-qam", "broken")
    write(repository)

    code, text, _, _ = ci()

    assert code == 0
    told = "Before, it could not be planned: capacity/chat.yaml:11: colour is"
    assert told in text


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("scheduler: ./mine.py\n", "is the Python file ./mine.py, which is executed"),
        (
            "executor: ray\nray_address: ray://example.org:10001\n",
            "names a Ray cluster",
        ),
        ("tokenizer: /etc/hostname\n", "hostname lies outside the repository"),
        ("prices: ../../outside.csv\n", "outside.csv lies outside the repository"),
        ("prices: link.csv\n", "link.csv lies outside the repository"),
        ("profiles: folder\n", "deep.yaml lies outside the repository"),
        ("profiles: ../..\n", "lies outside the repository"),
        ("prices: 2026\n", "2026 lies outside the repository"),
    ],
)
def test_what_a_scenario_may_not_name_is_refused(ci, repository, more, said):
    write(repository, more=more)
    capacity = repository / "capacity"
    (capacity / "mine.py").write_text("raise SystemExit('executed')\n")
    (repository.parent / "outside.csv").write_text("secret\n")
    (capacity / "link.csv").symlink_to(repository.parent / "outside.csv")
    (capacity / "2026").symlink_to(repository.parent / "outside.csv")
    (capacity / "folder").mkdir()
    (capacity / "folder" / "deep.yaml").symlink_to(repository.parent / "outside.csv")

    code, _, _, err = ci()

    assert code == 2
    assert said in err
    assert "secret" not in err
    assert "executed'" not in err


def test_a_scenario_that_is_a_link_to_elsewhere_is_not_read(ci, repository):
    outside = repository.parent / "outside.yaml"
    outside.write_text("secret: 1\n")
    (repository / "capacity" / "link.yaml").symlink_to(outside)

    code, _, _, err = ci()

    assert code == 2
    assert "link.yaml lies outside the repository" in err
    assert "secret" not in err


def test_a_name_of_two_lines_is_refused_on_one(ci, repository):
    write(repository, "a\n::error::b.yaml")

    code, _, _, err = ci()

    assert code == 2
    assert "expected a name on one line" in err
    assert "\n::" not in err


@pytest.mark.parametrize("flag", ["--cache", "--out"])
@pytest.mark.parametrize("is_link", [True, False])
def test_a_folder_of_plans_that_the_change_brings_along_is_refused(
    ci, repository, flag, is_link
):
    plans = repository / "plans"
    if is_link:
        plans.symlink_to(repository.parent)
    else:
        plans.mkdir()
        (plans / "plan.json").write_text("{}")
        git(repository, "add", ".")

    code, _, _, err = ci(flag, "plans")

    assert code == 2
    assert "plans comes with the repository" in err


def test_a_plan_sees_no_variable_of_the_job(ci, repository, monkeypatch, cache):
    seen = []
    run = subprocess.run

    def watched(words, **how):
        seen.extend(how["env"] if "plan" in words else [])
        return run(words, **how)

    monkeypatch.setattr("capplan.cli.both_sides.subprocess.run", watched)
    monkeypatch.setenv("DATABASE_URL", "postgres://name:secret@example.org")
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    write(repository, rate=22)

    ci(base="")

    assert "PATH" in seen
    assert not {"DATABASE_URL", "GITHUB_TOKEN"} & {*seen}


def test_code_beside_the_scenarios_is_not_imported(ci, repository):
    write(repository, rate=21)
    for name in ("numpy.py", "json.py", "sitecustomize.py"):
        (repository / name).write_text("raise SystemExit('executed')\n")

    assert ci()[0] == 0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--fail-above", "10"], "expected a percentage such as 10%, or $5000"),
        (["--fail-if", "colour"], "'misses', 'estimated', 'misses,estimated', 'none'"),
        (["--comment", "often"], "'changed', 'always', 'never'"),
        (["--args", "--seed '1"], "--args"),
        (["--args", "--colour red"], "capacity/chat.yaml: No such option: --colour"),
        (["--base", "nothing"], "is no commit of this clone"),
        (["--base", "--output=x"], "is no commit of this clone"),
        (["--price-date", "yesterday"], "capacity/chat.yaml"),
    ],
)
def test_what_is_wrong_is_one_line(ci, flags, said):
    code, _, _, err = ci(*flags)

    assert code == 2
    assert said in err.splitlines()[-1]
    assert "Traceback" not in err


def test_a_pattern_of_nothing_and_one_outside_are_refused(ci):
    assert "no scenario is no/*.yaml" in ci(pattern="no/*.yaml")[3]
    assert "expected a path within" in ci(pattern="../*.yaml")[3]


def test_prices_of_a_day_before_all_of_them_are_refused(ci, repository):
    scenario = repository / "capacity" / "chat.yaml"
    text = scenario.read_text().replace("price: {H100-SXM: 2}\n", "")
    scenario.write_text(text)

    code, _, _, err = ci("--price-date", "2019-01-01", base="")

    assert code == 2
    assert "price_date is 2019-01-01, before the first price known" in err


def test_names_are_no_markup(ci, repository):
    name = "a|b<img src=x>*@octocat*.yaml"
    write(repository, name, rate=40)
    write(repository, rate=40)

    _, text, _, _ = ci()

    assert r"a\|b\<img src=x\>\*" in text
    assert "<summary>capacity/a|b&lt;img src=x&gt;" in text
    assert "<img" not in text.replace(r"\<img", "")
    assert "@octocat" not in text


def test_the_guide_shows_the_comment_that_its_change_makes(
    repository, tmp_path, capsys
):
    guide = (ROOT / "docs" / "guides" / "ci.md").read_text()
    scenario, comment = re.findall(
        r"```(?:yaml\nw|markdown\n)(.*?)```", guide, re.DOTALL
    )
    (repository / "capacity" / "chat.yaml").write_text(f"w{scenario}")
    git(repository, "commit", "-qam", "before")
    text = f"w{scenario}".replace("rate: 30", "rate: 45")
    (repository / "capacity" / "chat.yaml").write_text(text)
    command = shlex.split(re.findall(r"```sh\n(capplan ci .*)\n```", guide)[0])

    code = exit_code(command[1:])

    capsys.readouterr()
    assert code == 4
    assert (repository / "capplan-ci" / "comment.md").read_text().startswith(comment)


# A comment: the server plays what GitHub's REST API documents for issue comments, and
# its GraphQL API for whose a token is.

BOT = {"login": "github-actions[bot]", "type": "Bot"}


@pytest.fixture
def github(monkeypatch, tmp_path):
    """Comments of pull request 7, by id; ``calls`` and a ``status`` to answer with."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self, status, value):
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(value).encode())

        def serve(self):
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            assert self.headers["Authorization"] == "Bearer secret"
            path, _, query = self.path.partition("?")
            if path == "/graphql":
                viewer = {"viewer": {"login": BOT["login"]}}
                assert body == {"query": "{viewer{login}}"}
                return self.answer(200, {"data": viewer})
            server.calls.append(self.command)
            if self.command != "GET" and server.status != 200:
                return self.answer(server.status, {"message": "no"})
            if self.command == "GET" and path == "/repos/o/r/issues/7/comments":
                page = int(query.split("page=")[-1])
                return self.answer(200, server.there[100 * (page - 1) : 100 * page])
            if self.command == "POST" and path == "/repos/o/r/issues/7/comments":
                server.there.append({"id": 5000, "user": BOT, **body})
                return self.answer(201, server.there[-1])
            found = [x for x in server.there if path.endswith(f"comments/{x['id']}")]
            found[0].update(body)
            return self.answer(200, found[0])

        do_GET = do_POST = do_PATCH = serve

        def log_message(self, *args):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.there, server.calls, server.status = [], [], 200
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@pytest.fixture
def gitlab(repository, monkeypatch):
    """Notes of merge request 7 of project 3; ``calls`` with their paths and tokens."""
    calls = []

    class Handler(BaseHTTPRequestHandler):
        def serve(self):
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else {}
            token = self.headers["PRIVATE-TOKEN"]
            calls.append((self.command, self.path.partition("?")[0], token))
            if self.command == "POST":
                server.there.append(
                    {"id": 11, "author": {"username": "project_3_bot"}, **body}
                )
            self.send_response(200)
            self.end_headers()
            user = {"username": "project_3_bot"}
            found = user if self.path.endswith("/user") else server.there
            self.wfile.write(json.dumps(found).encode())

        do_GET = do_POST = do_PUT = serve

        def log_message(self, *args):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    other = {"username": "maintainer"}
    server.there = [{"id": 3, "author": other, "body": MARK}]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("CI_MERGE_REQUEST_IID", "7")
    monkeypatch.setenv("CI_PROJECT_ID", "3")
    monkeypatch.setenv("GITLAB_TOKEN", "secret")
    monkeypatch.setenv("CI_API_V4_URL", f"http://127.0.0.1:{server.server_port}/api/v4")
    yield calls
    server.shutdown()
    server.server_close()


def test_a_merge_request_gets_a_note_which_is_updated(ci, repository, gitlab):
    notes, user = "/api/v4/projects/3/merge_requests/7/notes", "/api/v4/user"
    write(repository, rate=40)
    ci()
    write(repository)
    ci()

    assert gitlab == [
        ("GET", user, "secret"),
        ("GET", notes, "secret"),
        ("POST", notes, "secret"),
        ("GET", user, "secret"),
        ("GET", notes, "secret"),
        ("PUT", f"{notes}/11", "secret"),
    ]


@pytest.fixture
def job(repository, github, monkeypatch, tmp_path):
    """The variables of a job of pull request 7; return its files."""
    files = {name: tmp_path / name for name in ("output", "summary")}
    given = {
        "PULL_REQUEST": "7",
        "GITHUB_TOKEN": "secret",
        "GITHUB_REPOSITORY": "o/r",
        "GITHUB_API_URL": f"http://127.0.0.1:{github.server_port}",
        "GITHUB_OUTPUT": str(files["output"]),
        "GITHUB_STEP_SUMMARY": str(files["summary"]),
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    yield files
    github.shutdown()
    github.server_close()


def test_a_change_makes_a_comment_which_is_updated_back_to_no_change(
    ci, repository, github, job
):
    write(repository, rate=40)
    ci()
    made = github.there[0]["body"]
    ci()
    again = list(github.calls)
    write(repository)
    ci()

    assert made.startswith(f"{MARK}\n### +$")
    assert again == ["GET", "POST", "GET"]  # the same text is not written twice
    assert github.calls[-1] == "PATCH"
    assert len(github.there) == 1
    assert "### No change" in github.there[0]["body"]
    assert "title=Rent " in job["output"].read_text()
    assert job["summary"].read_text().count(MARK) == 3


def test_what_cannot_be_planned_is_a_line_of_the_summary(ci, repository, job, github):
    write(repository, more="colour: red\n")

    code, _, _, said = ci()

    line = "capacity/chat.yaml:11: colour is not a setting"
    assert code == 2
    assert line in said
    assert job["summary"].read_text().startswith(f"capplan: {line}")
    assert github.calls == []


def test_no_change_makes_no_comment_but_a_summary(ci, github, job):
    ci()

    assert github.there == []
    assert "### No change" in job["summary"].read_text()


@pytest.mark.parametrize(
    ("flags", "count"),
    [
        (["--comment", "never"], 0),
        (["--comment-above", "$900000"], 0),
        (["--comment-above", "$1"], 1),
    ],
)
def test_a_change_is_commented_where_it_was_asked_for(
    ci, repository, github, job, flags, count
):
    write(repository, rate=40)

    ci(*flags)

    assert len(github.there) == count


@pytest.mark.parametrize(
    "other",
    [
        {"user": {"login": "octocat", "type": "User"}, "author_association": "NONE"},
        {"user": {"login": "github-actions"}, "author_association": "MEMBER"},
        {"user": {"login": "another[bot]", "type": "Bot"}},
        {"user": None},
    ],
)
def test_the_comment_is_found_on_a_later_page_and_not_in_anothers(
    ci, repository, github, job, other
):
    write(repository, rate=40)
    github.there = [{"id": at, "body": MARK, **other} for at in range(150)]
    github.there.append({"id": 999, "user": BOT, "body": MARK})

    ci()

    assert github.calls == ["GET", "GET", "PATCH"]
    assert "### +$" in github.there[-1]["body"]


def test_a_token_that_may_not_write_leaves_a_line_in_the_summary(
    ci, repository, github, job
):
    write(repository, rate=40)
    github.status = 403

    code, _, _, said = ci()

    assert code == 0
    assert "no comment: HTTP 403" in said
    assert "No comment: HTTP 403 Forbidden" in job["summary"].read_text()
    assert "secret" not in said + job["summary"].read_text()


def test_without_a_token_there_is_the_summary_alone(
    ci, repository, github, job, monkeypatch
):
    write(repository, rate=40)
    monkeypatch.delenv("GITHUB_TOKEN")

    assert ci()[0] == 0
    assert github.calls == []
    assert "the job has no token" in job["summary"].read_text()


# The action: its steps, run by bash as a runner runs them, with another uvx on PATH.

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())


def evaluated(text, context):
    return re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda name: context[name[1]], text)


@pytest.fixture
def action(repository, job, github, tmp_path):
    """Run the action with inputs; return its exit code, outputs and what uvx got."""
    uvx = tmp_path / "bin" / "uvx"
    uvx.parent.mkdir()
    uvx.write_text(
        f'#!/bin/bash\necho "$1" > {tmp_path}/asked\n'
        f'PYTHONPATH={ROOT} exec {sys.executable} -P -m capplan "${{@:2}}"\n'
    )
    uvx.chmod(0o755)

    def run(base="", **given):
        context = {
            "github.event.pull_request.base.sha": base,
            "github.event.pull_request.number": "7",
            "github.token": "secret",
        }
        for name, how in ACTION["inputs"].items():
            default = evaluated(how.get("default", ""), context)
            value = given.get(name.replace("-", "_"), default)
            context[f"inputs.{name}"] = value
        environment = {k: v for k, v in os.environ.items() if k not in VARIABLES}
        environment |= {
            name: os.environ[name] for name in os.environ if "GITHUB_" in name
        }
        environment["PATH"] = f"{uvx.parent}:{os.environ['PATH']}"
        environment["RUNNER_TEMP"] = str(tmp_path / "temp")
        Path(environment["RUNNER_TEMP"]).mkdir(exist_ok=True)
        for step in (step for step in ACTION["runs"]["steps"] if "run" in step):
            script = tmp_path / "step.sh"
            script.write_text(step["run"])
            bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
            own = {k: evaluated(v, context) for k, v in step["env"].items()}
            code = subprocess.run(
                bash, env=environment | own, cwd=repository
            ).returncode
        lines = job["output"].read_text().splitlines() if job["output"].exists() else []
        outputs = dict(line.split("=", 1) for line in lines)
        return code, outputs, (tmp_path / "asked").read_text().strip()

    return run


def test_the_action_compares_comments_and_sets_its_outputs(
    action, repository, github, job
):
    base = git(repository, "rev-parse", "HEAD")
    write(repository, rate=40)
    git(repository, "commit", "-qam", "twice the traffic")

    code, outputs, asked = action(base, scenario="capacity/*.yaml", fail_above="10%")

    read = [
        re.findall(r"outputs\.([\w-]+)", x["value"])[0]
        for x in ACTION["outputs"].values()
    ]
    assert code == 4
    assert asked == "capplan"
    assert list(outputs) == list(ACTION["outputs"]) == read
    assert outputs["peak"] == "holds"
    assert (Path(outputs["folder"]) / "capacity" / "chat.yaml" / "report.html").exists()
    assert "**Check fails: more than +10 %.**" in github.there[0]["body"]
    assert github.there[0]["body"] in job["summary"].read_text()


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("uv.lock", '[[package]]\nname = "capplan"\nversion = "0.4.0"\n'),
        ("pyproject.toml", '[dependency-groups]\ndev = ["capplan==0.4.0"]\n'),
        ("requirements.txt", "numpy==2.0.0\ncapplan==0.4.0  # planned\n"),
    ],
)
def test_the_action_takes_the_version_of_a_lock_file_unless_one_is_given(
    action, repository, file, text
):
    (repository / file).write_text(text)

    of_file = action(scenario="none.yaml")[2]
    given = action(scenario="none.yaml", version="0.3.0")[2]

    assert of_file == "capplan==0.4.0"
    assert given == "capplan==0.3.0"


def test_what_a_pull_request_names_is_no_code_of_the_action(action, repository):
    code, _, asked = action(base="$(touch x)", scenario="`touch y`", args="; touch z")

    assert code == 2
    assert asked == "capplan"
    assert [name for name in "xyz" if (repository / name).exists()] == []
    assert [
        step for step in ACTION["runs"]["steps"] if "${{" in step.get("run", "")
    ] == []
