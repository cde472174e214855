"""Laws run on schedulers: all that are shipped hold, and nonsense is caught."""

import re

import numpy as np
import pytest
from numba import config
from own_schedulers import FAIR, written

from capplan.cli.main import exit_code
from capplan.simulator.laws.checking import check_case, check_laws
from capplan.simulator.schedulers import SCHEDULERS, parse_scheduler
from tests.rest_slow import rest_slow

CASES = 10 if config.DISABLE_JIT else 40
SETTINGS = ["vllm-v0:swap=1", "vllm-v0:chunked=1", "static:padded=1"]
RETURN = "    return 1 if tokens + replica.decode_count > 0 else 0\n"
SEATS = """
    while replica.waiting_head != NONE and replica.free_blocks > 20 and budget > 24:
        slot = replica.waiting_head
        known = state.requests[slot].known_tokens
        take_blocks(state, r, -(-known // state.engine[0].block_size))
        remove_waiting(state, r, slot)
        join(state, r, slot, known)
        budget -= known
"""
MORE_IMPORTS = """from capplan.simulator.engine.batch import join
from capplan.simulator.kv.kvcache import take_blocks
from capplan.simulator.engine.queues import remove_waiting
"""
IMPORTS = "from capplan.simulator.jit import compiled\n"
NONSENSE = {
    "negative horizon": (RETURN, "    return -3\n", "returned -3; expected a horizon"),
    "long horizon": (
        RETURN,
        "    return 1 if tokens > 0 else replica.decode_count * 50\n",
        "returned .* the first request has its last token after|KV blocks more",
    ),
    "a prompt left out": (
        RETURN,
        "    return 0\n",
        "tokens of prompts in the iteration",
    ),
    "nothing to run": (
        "chunk = admit(state, r, budget)",
        "return 1",
        "returned 1 with nothing to run; expected 0",
    ),
    "blocks kept": (
        "    replica = state.replicas[r]\n",
        "    replica = state.replicas[r]\n"
        "    if replica.free_blocks > 30 and replica.waiting_count > 0:\n"
        "        take_blocks(state, r, 1)\n",
        r"left \d+ of \d+ KV blocks free at the end",
    ),
    "more blocks than there are": (
        RETURN,
        "    take_blocks(state, r, 1)\n" + RETURN,
        r"has -1 free KV blocks; expected 0 to \d+",
    ),
    "more than the seats": (
        "    while replica.preempted",
        SEATS + "    while replica.preempted",
        r"runs \d requests at once; max_num_seqs is \d",
    ),
    "never admits": (
        "chunk = admit(state, r, budget)",
        "chunk = 0",
        r"returned 0 with nothing in flight while \d+ requests wait",
    ),
    "too many tokens": (
        "= state.engine[0].max_num_batched_tokens - replica.decode_count",
        "= 1000",
        r"batches \d+ tokens; expected at most \d+",
    ),
    "looks at the length of a jump": (
        "    if replica.prefilling != NONE:",
        "    if state.engine[0].longest_jump == 1 and replica.decode_count > 2:\n"
        "        return 1\n    if replica.prefilling != NONE:",
        "with jumps cut to one iteration",
    ),
    "refuses a looser engine": (
        "\n\n@compiled",
        "\n\ndef refused(trace, engine, settings):\n"
        "    return trace.prompt_tokens < engine.kv_blocks - 60, 'KV'\n\n\n@compiled",
        "refused with twice the KV",
    ),
    "fails in refused": (
        "\n\n@compiled",
        "\n\ndef refused(trace, engine, settings):\n    return 1 // 0\n\n\n@compiled",
        "ZeroDivisionError",
    ),
}
COMPILED = {"blocks kept", "looks at the length of a jump", "more than the seats"}
"""Kinds of which each run of the tests compiles a scheduler."""


def check(given, cases):
    """Return the broken laws and the counts of cases, in this process."""
    found = [check_case(parse_scheduler(given), seed) for seed in range(cases)]
    return [x for texts, _ in found for x in texts], np.sum([n for _, n in found], 0)


@pytest.mark.thorough
@pytest.mark.parametrize("name", [*sorted(SCHEDULERS), *SETTINGS])
def test_every_law_holds_for_every_shipped_scheduler(name):
    broken, (refused, requests, *_) = check(name, CASES)

    assert broken == []
    assert refused == 0
    assert requests > 8 * CASES


@pytest.mark.thorough
def test_the_cases_are_short_of_kv():
    for name in ("vllm-v1", "sarathi", "fastgen", "oracle", "vllm-v0"):
        assert check(name, CASES)[1][3] > CASES // 4, name
    assert check("vllm-v0:swap=1", CASES)[1][4] > CASES // 4


@pytest.mark.thorough
@pytest.mark.parametrize("kind", rest_slow(NONSENSE, COMPILED.__contains__))
def test_nonsense_is_caught_with_its_case(kind, tmp_path):
    old, new, complaint = NONSENSE[kind]
    assert old in FAIR
    text = FAIR.replace(old, new, 1).replace(IMPORTS, MORE_IMPORTS + IMPORTS, 1)

    broken, _ = check(f"{written(tmp_path, text)}", CASES)

    assert any(re.search(complaint, line) for line in broken)


@pytest.mark.thorough
def test_a_scheduler_that_never_returns_does_not_hang_the_check(tmp_path):
    endless = FAIR.replace(
        "    replica = state.replicas[r]\n",
        "    replica = state.replicas[r]\n    while replica.waiting_count > 1:\n"
        "        replica.preempted = 0\n",
        1,
    )
    path = written(tmp_path, endless)

    checked = check_laws(f"{path}", 40, limit_s=5)

    assert checked.broken[-1].startswith("does not end within 5 s (again: --seed ")


@pytest.mark.thorough
def test_the_command_says_which_case_to_run_again(tmp_path, capsys):
    path = written(tmp_path, FAIR.replace(RETURN, "    return -3\n", 1))

    assert exit_code(f"check-scheduler {path} --cases 3 --seed 7".split()) == 1

    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"{path}@sha256-")
    assert error.endswith("iterations or more (again: --seed 9 --cases 1)")


@pytest.mark.thorough
def test_the_command_counts_what_it_has_seen(tmp_path, capsys):
    path = written(tmp_path)

    assert exit_code(f"check-scheduler {path} --cases 20".split()) == 0

    shown = capsys.readouterr().out
    assert len(shown.splitlines()) == 1
    assert ":weight=2: all laws hold: 20 cases, " in shown
    assert exit_code(["check-scheduler", "vlm-v1"]) == 2
