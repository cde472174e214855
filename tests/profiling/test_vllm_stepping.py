"""How the vLLM backend steps an engine, whether or not it schedules ahead.

The engine here is a small one: first come first served with chunked prefill, and
as vLLM's core does, with a queue of two batches when it schedules ahead. A CPU
build of vLLM never does, so this is where that path is tested without a GPU.
"""

import itertools
import sys
from collections import deque
from types import ModuleType, SimpleNamespace

import pytest

from capplan.profiling.backend import EngineRequest
from capplan.profiling.iteration_clock import IterationClock
from capplan.profiling.scenes import Ladder, Point, Prompts, Rung
from capplan.profiling.vllm_backend import VllmBackend

BUDGET = 64


def cost_s(tokens):
    return 0.010 + 0.001 * sum(tokens.values())


class Scheduler:
    def __init__(self):
        self.requests = {}

    def schedule(self):
        left, tokens = BUDGET, {}
        for name, request in self.requests.items():
            prompt_left = request.num_prompt_tokens - request.num_computed_tokens
            if prompt_left <= 0 and request.outputs == request.max_tokens:
                continue  # its last token is on the way
            new = min(left, max(prompt_left, 1))
            if new:
                tokens[name] = new
                left -= new
        for name, new in tokens.items():
            request = self.requests[name]
            request.num_computed_tokens += new
            if request.num_computed_tokens >= request.num_prompt_tokens:
                request.outputs += 1
        return SimpleNamespace(num_scheduled_tokens=tokens)

    def update_from_output(self, output, model_output):
        for name in output.num_scheduled_tokens:
            request = self.requests.get(name)
            if request is None:
                continue
            request.taken += request.num_computed_tokens >= request.num_prompt_tokens
            if request.taken == request.max_tokens:
                del self.requests[name]
        return {}


class Engine:
    """One iteration per step; ahead of the device by one when asynchronous."""

    def __init__(self, is_async, launch_s=0.0):
        self.scheduler, self.is_async = Scheduler(), is_async
        self.launch_s = launch_s  # of an iteration with a prompt
        self.now_s = self.device_free_s = 0.0
        self.queue = deque()

    def add_request(self, name, prompt, params):
        self.scheduler.requests[name] = SimpleNamespace(
            num_computed_tokens=0,
            num_prompt_tokens=len(prompt["prompt_token_ids"]),
            max_tokens=params.max_tokens,
            outputs=0,
            taken=0,
        )

    def abort_request(self, names):
        for name in names:
            self.scheduler.requests.pop(name, None)

    def step(self):
        if self.scheduler.requests:
            output = self.scheduler.schedule()
            start_s = max(self.now_s, self.device_free_s)
            end_s = start_s + cost_s(output.num_scheduled_tokens)
            if not output.num_scheduled_tokens:
                end_s = start_s
            self.now_s += 0.0001  # deciding takes time, hidden when ahead
            if max(output.num_scheduled_tokens.values(), default=0) > 1:
                self.now_s += self.launch_s
                end_s = max(end_s, self.now_s)
            self.device_free_s = end_s
            self.queue.append((output, end_s))
            ahead = self.is_async and len(self.queue) < 2
            if ahead and output.num_scheduled_tokens:
                return []
        if self.queue:
            output, end_s = self.queue.popleft()
            self.now_s = max(self.now_s, end_s)
            self.scheduler.update_from_output(output, None)
        return []


ENGINES = {
    "one after the other": (False, 0.0),
    "ahead": (True, 0.0),
    "ahead, launching longer than it decodes": (True, 0.012),
}


@pytest.fixture(params=ENGINES.values(), ids=ENGINES)
def backend(request, monkeypatch):
    vllm = ModuleType("vllm")
    vllm.SamplingParams = lambda **settings: SimpleNamespace(**settings)
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    made = VllmBackend(EngineRequest("llm", 1))
    engine = Engine(*request.param)
    core = SimpleNamespace(scheduler=engine.scheduler)
    engine.engine_core = SimpleNamespace(engine_core=core)
    made.engine = engine
    made.clock = IterationClock(engine.scheduler, lambda: engine.now_s)
    made._lag = int(request.param[0])
    made._max_num_batched_tokens = BUDGET
    made._max_model_len = 4096
    made._vocabulary = 100
    return made


def test_prompts_are_timed_alone_after_one_to_warm_up(backend):
    samples = backend.run(Prompts(2, 20, 3))

    assert [sample.point for sample in samples] == [Point("prefill", 2, 40, 0)] * 3
    assert [sample.seconds for sample in samples] == pytest.approx([0.050] * 3)


def test_a_long_prompt_is_timed_chunk_by_chunk(backend):
    samples = backend.run(Prompts(1, 150, 2))

    points = [Point("prefill", 1, n, at) for n, at in ((64, 0), (64, 64), (22, 128))]
    assert [sample.point for sample in samples] == points * 2
    assert [s.seconds for s in samples] == pytest.approx([0.074, 0.074, 0.032] * 2)


def test_a_ladder_measures_every_iteration_at_its_place(backend):
    ladder = Ladder(90, (Rung(12, (16, 40)), Rung(5), Rung(1, (60,))), 4)

    samples = backend.run(ladder)

    assert [sample.point for sample in samples] == list(ladder.schedule().values())
    for sample in samples:
        assert sample.seconds == pytest.approx(0.010 + 0.001 * sample.point.new_tokens)


def test_nothing_is_left_behind_for_the_next_scene(backend):
    backend.run(Ladder(40, (Rung(8), Rung(2, (16,))), 3))

    assert backend.engine.scheduler.requests == {}
    assert backend.clock.in_flight == 0
    assert backend.run(Prompts(1, 10, 1))[0].seconds == pytest.approx(0.020)


def failing(engine, at):
    """Return a step that fails once, at its ``at``-th call, its batch in flight."""
    calls, step = itertools.count(1), engine.step

    def fail_once():
        number = next(calls)
        assert number < 10_000, "it steps for ever"
        if number == at:
            engine.scheduler.schedule()
            raise ValueError("unsupported head_dim 16")
        return step()

    return fail_once


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("scene", [Prompts(2, 20, 3), Ladder(40, (Rung(8),), 3)])
def test_a_step_that_raises_ends_the_scene_with_the_engines_words(scene, at, backend):
    engine = backend.engine
    engine.step = failing(engine, at)

    with pytest.raises(ValueError, match="unsupported head_dim 16"):
        backend.run(scene)

    assert engine.scheduler.requests == {}
    assert backend.run(Prompts(1, 10, 1))[0].seconds == pytest.approx(0.020)


def test_an_engine_that_fails_for_good_is_named_by_its_first_words(backend):
    engine, words = backend.engine, iter(["unsupported head_dim 16", "engine dead"])

    def fail():
        engine.scheduler.schedule()
        raise ValueError(next(words))

    engine.step = fail

    with pytest.raises(ValueError, match="unsupported head_dim 16"):
        backend.run(Prompts(2, 20, 3))
