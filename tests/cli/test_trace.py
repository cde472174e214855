"""``capplan trace``: sessions are described, cut, scaled and mixed whole."""

import json

import pytest

from tests.workload.readers.test_agents import SESSION, append
from tests.workload.readers.test_turns import CHAT


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    from capplan.cli.main import exit_code

    monkeypatch.chdir(tmp_path)
    (tmp_path / "chat.csv").write_text(CHAT)
    session = {**SESSION, "requests": [append(0, 640, 20), append(7, 700, 30)]}
    (tmp_path / "weka.json").write_text(json.dumps(session))

    def answer(*arguments):
        code = exit_code(["trace", *arguments])
        return code, *capsys.readouterr()

    return answer


def test_describe_says_what_sessions_share_and_which_cache_hits_it(run):
    code, out, _ = run("describe", "weka.json", "--block-size", "64", "--json")

    found = json.loads(out)
    assert code == 0
    assert (found["session_count"], found["request_count"], found["appends"]) == (
        1,
        2,
        1,
    )
    assert found["prefix_share"] == (128 + 660) / 1340
    assert found["hit_share"] == 640 / 1340
    assert found["hits"] == [{"cache_tokens": 131072, "hit_share": 640 / 1340}]
    assert found["hours"] == [
        {"hour": 0, "sessions": 1, "requests": 2, "live_sessions": 1}
    ]


def test_describe_is_one_screen_for_people(run):
    code, out, _ = run("describe", "chat.csv")

    assert code == 0
    assert "2 sessions of 2 turns" in out
    assert "2 go on, 0 with part of the one before, 0 anew" in out


def test_cut_scaled_and_mixed_sessions_are_written_whole(run, tmp_path):
    assert run("cut", "chat.csv", "--sessions", "1", "-o", "first.csv")[0] == 0
    assert run("scale", "chat.csv", "--by", "2", "-o", "twice.csv")[0] == 0
    code, out, _ = run(
        "mix", "first.csv", "twice.csv", "weka.json", "-o", "all.csv", "--json"
    )

    assert (tmp_path / "first.csv").read_text().splitlines()[1:] == [
        "r0,0.0,8,5,s,6,,,0,0,0",
        "r1,,16,2,r0,13,r0,1.0,0,0,0",
        "r2,,20,2,r1,18,r1,0.5,0,0,0",
    ]
    assert code == 0
    found = json.loads(out)
    assert (found["session_count"], found["request_count"]) == (1 + 4 + 1, 3 + 8 + 2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["cut", "chat.csv", "--sessions", "0", "-o", "x.csv"], "--sessions is 0"),
        (["describe", "chat.csv", "--block-size", "0"], "--block-size is 0"),
        (["describe", "chat.csv", "--thinking", "no"], "--thinking is 'no'"),
        (["describe", "chat.csv", "--every", "soon"], "'soon'"),
        (["scale", "chat.csv", "--by", "-1", "-o", "x.csv"], "--scale is -1"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_code_2(run, arguments, said):
    code, out, err = run(*arguments)

    assert (code, out) == (2, "")
    assert said in err.splitlines()[-1]
