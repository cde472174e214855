"""The measuring process answers by line, whatever the engine does."""

import io
import json
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from capplan.errors import InputError
from capplan.profiling.backend import EngineRequest, backend_class
from capplan.profiling.child import serve
from capplan.profiling.parent import EngineFailure, EngineProcess
from capplan.profiling.scenes import Point, Prompts


def answers_of(lawful, questions, **options):
    backend = backend_class(lawful)(EngineRequest("llm", 1, options))
    answers = io.StringIO()
    serve(
        backend, io.StringIO("".join(json.dumps(q) + "\n" for q in questions)), answers
    )
    return [json.loads(line) for line in answers.getvalue().splitlines()]


def test_each_question_has_one_answer(lawful):
    scene = {"scene": asdict(Prompts(1, 100, 2))}

    device, facts, samples = answers_of(
        lawful, [{"device": True}, {"load": True}, scene]
    )

    assert device == {"device": "NVIDIA H100 80GB HBM3"}
    assert facts["facts"]["backend"] == "lawful"
    # 2 ms + 100 tokens of 20 us + 4 ns * 100 * 50
    assert samples["samples"] == [["prefill", 1, 100, 0, pytest.approx(4.02e-3)]] * 2


def test_a_failure_is_an_answer_and_not_the_end(lawful, capfd):
    scene = {"scene": asdict(Prompts(1, 100, 1))}

    failed, device = answers_of(lawful, [scene, {"device": True}], refuse="prefill")

    assert failed == {"failed": "MemoryError: out of memory in this scene"}
    assert "device" in device


def test_an_engine_in_a_process_of_its_own_measures(lawful, tmp_path):
    request = EngineRequest("llm", 2, {})

    with EngineProcess(lawful, request, tmp_path / "log") as engine:
        facts = engine.load()
        samples = engine.run(Prompts(1, 100, 1))
        reduced_s = engine.all_reduce_s(1000)

    assert facts.kv_bytes_per_token == 65536.0
    assert samples[0].point == Point("prefill", 1, 100, 0)
    assert reduced_s == pytest.approx(2e-5)


def test_a_killed_engine_is_a_failure_with_its_last_words(lawful, tmp_path):
    request = EngineRequest("llm", 1, {"die_at": 1})

    with EngineProcess(lawful, request, tmp_path / "log") as engine:
        with pytest.raises(EngineFailure, match="the cache grew too large"):
            engine.run(Prompts(1, 100, 1))

        assert not engine.alive


def test_a_killed_engine_without_words_is_named_by_its_signal(lawful, tmp_path):
    request = EngineRequest("llm", 1, {"die_at": 1})

    with EngineProcess(lawful, request, tmp_path / "log") as engine:
        (tmp_path / "log").rename(tmp_path / "moved")
        (tmp_path / "log").write_text("")
        with pytest.raises(EngineFailure, match=r"SIGKILL.* memory runs out"):
            engine.run(Prompts(1, 100, 1))


def test_an_unknown_backend_names_the_known_ones():
    with pytest.raises(InputError, match="vllm, torch"):
        backend_class("tensorrt")


ORPHAN = """
import sys
from pathlib import Path
from capplan.profiling.backend import EngineRequest
from capplan.profiling.parent import EngineProcess
from capplan.profiling.scenes import Prompts
log = Path(sys.argv[2])
with EngineProcess(sys.argv[1], EngineRequest("llm", 1, {"pause_s": 600}), log) as one:
    print(one._process.pid, flush=True)
    one.run(Prompts(1, 100, 1))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel of Linux")
def test_the_engine_dies_with_a_parent_that_is_killed(lawful, tmp_path):
    command = [sys.executable, "-c", ORPHAN, lawful, str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        child = Path("/proc") / parent.stdout.readline().strip()
        while "engine process" not in (tmp_path / "log").read_text():
            assert parent.poll() is None
            time.sleep(0.01)
        parent.send_signal(signal.SIGKILL)

    while child.exists() and ") Z " not in (child / "stat").read_text():
        time.sleep(0.01)  # the engine would sleep ten minutes
