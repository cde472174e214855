"""Recordings of disaggregated serving hold together, and follow the rules."""

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded import TOLERANCE_S, tags
from recorded_disaggregated import Iteration, Recording, read
from step_disaggregated import Deployment

DATA = Path(__file__).parent / "data" / "disaggregated"
RECORDED = {tag: read(DATA, tag) for tag in tags(DATA)}


def those(chosen: Callable[[Recording], bool] = lambda recording: True):
    """Run a test on the recordings that are chosen."""
    kept = {tag: one for tag, one in RECORDED.items() if chosen(one)}
    return pytest.mark.parametrize("recording", kept.values(), ids=list(kept))


def decodes(recording: Recording) -> bool:
    return bool(recording.given["decode"])


def tells_blocks(recording: Recording) -> bool:
    """Whether the blocks that each request holds can be told from the recording."""
    preempts = any(one.preempted for one in recording.iterations)
    return not (recording.engine.prefix_caching or preempts)


@those()
def test_the_step_by_step_rules_give_the_recorded_schedule(recording):
    again = Deployment(recording)

    again.run()

    assert first_difference(recording, again) == ""


def first_difference(recording: Recording, again: Deployment) -> str:
    """Return the first entry that differs; "" if none does."""
    for k, (engine, ours) in enumerate(
        zip(recording.iterations, again.steps, strict=False)
    ):
        for name in Iteration._fields:
            if not same(getattr(engine, name), getattr(ours, name)):
                return f"iteration {k}: {name}: {engine} but {ours}"
    if len(recording.iterations) != len(again.steps):
        return f"{len(recording.iterations)} iterations but {len(again.steps)}"
    for row, request in enumerate(recording.requests):
        for name, ours in again.outcome(row).items():
            if not same(float(request[name]), ours):
                return f"request {row}: {name} is {request[name]} but {ours}"
    return ""


def same(recorded, ours) -> bool:
    if isinstance(recorded, float):
        return abs(recorded - ours) <= TOLERANCE_S
    return recorded == ours


@those()
def test_copies_into_an_engine_follow_one_another_in_the_order_of_their_room(recording):
    given = recording.given
    for k in range(max(1, given["decode"])):
        copies = [
            copy
            for copy in recording.copies
            if max(0, int(recording.requests[copy.request]["decode"])) == k
        ]

        assert copies == sorted(copies, key=lambda copy: copy.taken_s)
        for copy, after in itertools.pairwise(copies):
            assert after.start_s >= copy.ready_s
        for copy in copies:
            took_s = given["handshake_s"] + copy.blocks * given["block_s"]
            assert copy.start_s >= copy.taken_s
            assert copy.ready_s == pytest.approx(copy.start_s + took_s, abs=1e-12)


@those(decodes)
def test_a_pulled_prompt_computes_its_last_token_once_it_is_there(recording):
    for copy in recording.copies:
        request = recording.requests[copy.request]
        engine = f"d{request['decode']}"
        first, part = next(
            (one, part)
            for one in recording.of(engine)
            for part in one.parts
            if part.request == copy.request
        )

        assert part.computed == int(request["prompt_len"]) - 1
        assert part.scheduled == 1
        assert first.sched_s >= copy.told_s >= copy.ready_s
        assert copy.blocks >= 1


@those()
def test_the_scheduler_hears_of_a_copy_with_the_result_that_the_report_names(recording):
    by_end = recording.given["report"] == "end"
    heard = [
        (f"{kind}{recording.requests[copy.request][pool]}", copy.ready_s, told_s)
        for copy in recording.copies
        for kind, pool, told_s in (
            ("p", "prefill", copy.freed_s),
            ("d", "decode", copy.told_s),
        )
        if told_s == told_s
    ]

    for engine, ready_s, told_s in heard:
        runs = recording.of(engine)
        busy = any(one.sched_s < ready_s <= one.end_s for one in runs)
        ends = [one.end_s for one in runs if by_end or one.sched_s >= ready_s]
        ends = [end_s for end_s in ends if end_s >= ready_s]
        # An engine that runs out of work looks all the time, after its last result.
        last = [one.end_s for one in runs if one.sched_s < ready_s <= one.end_s]
        expected = {min(ends, default=ready_s)} if busy else {ready_s}
        assert told_s in expected | ({max(last)} if last and not by_end else set())


@those()
def test_seats_and_budget_suffice_and_room_is_never_below_none(recording):
    engine = recording.engine
    for one in recording.iterations:
        assert 0 <= one.free_blocks < engine.kv_blocks
        assert one.running <= engine.max_num_seqs
        assert one.ctx_tokens + one.gen_reqs <= engine.max_num_batched_tokens
        assert one.ctx_reqs + one.gen_reqs == len(one.parts)


@those(tells_blocks)
def test_blocks_are_conserved_where_nothing_is_shared_or_preempted(recording):
    for name in recording.engines:
        for k, one in enumerate(recording.of(name)):
            used = sum(held_blocks(recording, name, one, k).values())

            assert one.free_blocks == recording.engine.kv_blocks - 1 - used


def held_blocks(
    recording: Recording, name: str, now: Iteration, k: int
) -> dict[int, int]:
    """Return the blocks that each request holds once an iteration is scheduled."""
    tokens: dict[int, int] = {}
    prefills = name[0] == "p"
    for copy in recording.copies:
        request = recording.requests[copy.request]
        here = not prefills and name == f"d{request['decode']}"
        if here and copy.taken_s <= now.sched_s:
            tokens[copy.request] = int(request["prompt_len"])
    for one in recording.of(name)[: k + 1]:
        for part in one.parts:
            tokens[part.request] = part.computed + part.scheduled
    freed_column = "prefill_told_s" if prefills else "finish_s"
    return {
        row: -(-count // recording.engine.block_size)
        for row, count in tokens.items()
        if not float(recording.requests[row][freed_column]) <= now.sched_s
    }


@those()
def test_every_request_gets_its_tokens_and_gives_back_its_blocks(recording):
    for copy in recording.copies:
        if recording.given["prefill"]:
            token_s = float(recording.requests[copy.request]["prefill_finish_s"])
            assert token_s < copy.ready_s <= copy.freed_s
    for row in recording.requests if recording.given["decode"] else []:
        first_s, finish_s = float(row["first_token_s"]), float(row["finish_s"])
        assert float(row["arrival_s"]) <= float(row["first_sched_s"]) < first_s
        assert (first_s == finish_s) == (row["output_len"] == "1")


def test_with_async_scheduling_nothing_is_preempted_whose_result_is_in_flight():
    def sat_out(tag: str) -> list[int]:
        return [
            k
            for k, one in enumerate(RECORDED[tag].iterations)
            if not one.preempted and one.free_blocks == 0 and one.parts[1:]
            if len(one.parts) < one.running
        ]

    stuck = sat_out("preempt_a1")

    assert sat_out("preempt_a0") == []
    assert stuck
    steps = RECORDED["preempt_a1"].iterations
    assert any(steps[k + 1].preempted for k in stuck)


@pytest.mark.parametrize(
    ("spoiled", "recorded_by"),
    [
        ({"report": "launch"}, "beside_decodes_a0"),
        ({"hop_s": 0.003}, "pair_a1"),
        ({"handshake_s": 0.0}, "held_a0"),
    ],
)
def test_another_setting_is_told_from_the_recorded_one(spoiled, recorded_by):
    recording = RECORDED[recorded_by]
    other = dataclasses.replace(recording, given={**recording.given, **spoiled})
    again = Deployment(other)

    again.run()

    assert first_difference(recording, again) != ""
