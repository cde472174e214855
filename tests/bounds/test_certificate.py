"""Certificates are accepted as made; every changed copy is refused."""

import json
import re
from dataclasses import asdict, replace

import numpy as np
import pytest

from capplan.bounds.bound_check import COLUMNS, Inputs, check_bound, inputs_digest
from capplan.bounds.certificate import (
    Reproduction,
    certificate,
    check_document,
    pool_proof,
    seal,
)
from capplan.bounds.lower_bound import lower_bound
from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import LatencyTables, linear_tables

LIMITS = EngineSettings(max_num_batched_tokens=128, max_num_seqs=32, kv_blocks=300)


def straight_tables():
    """Return tables without a kink, which are checked at their ends."""
    return linear_tables(5e-3, 5e-5, 1e-8, 3e-4, 1e-6, max_batch=32, max_tokens=128)


def kinked_tables():
    """Return tables whose prefill takes longer per token above 60 tokens."""
    linear = linear_tables(5e-3, 5e-5, 1e-8, 3e-4, 1e-6, max_batch=32, max_tokens=128)
    tokens = np.arange(129.0)
    return linear._replace(fused_s=linear.fused_s + 1e-4 * np.maximum(tokens - 60, 0))


def sealed_plan(tables: LatencyTables | None = None, engine: EngineSettings = LIMITS):
    """Return a sealed document and its ``reproduce``."""
    generator = np.random.default_rng(7)
    n = 400
    columns = dict(
        zip(
            COLUMNS,
            (
                np.sort(generator.random(n) * 2),
                generator.integers(1, 60, n),
                generator.integers(1, 40, n),
                np.zeros(n),
                np.full(n, 0.3),
                np.full(n, 0.015),
                np.full(n, np.inf),
                (np.arange(n) % 10 == 0).astype(np.int64),
            ),
            strict=True,
        )
    )
    tables = tables or kinked_tables()
    bound = lower_bound(columns, [0.995, 0.95], tables, engine)
    inputs = Inputs(columns, tables._asdict(), engine.document())
    count = max(3, bound.replica_count)
    kind = {"gpu": "H100-SXM", "tp": 1, "replica_count": count}
    proof = pool_proof(asdict(bound), inputs, [0.995, 0.95], **kind)
    block = certificate([proof], 0.99, 0.995, {(count - 1,): 0.4})
    document = {"schema": "capplan.plan/1", "gpu_count": 3, "certificate": block}
    attained = {(count,): 0.995, (count - 1,): 0.4}
    return seal(document), lambda _: Reproduction([inputs], attained)


def test_a_certificate_is_accepted_as_made():
    document, reproduce = sealed_plan()

    assert document["certificate"]["bound"]["replica_count"] >= 2
    assert check_document(document, reproduce) == []
    assert check_document(json.loads(json.dumps(document)), reproduce) == []


@pytest.mark.parametrize(
    "engine",
    [
        replace(LIMITS, prefix_caching=True),
        replace(LIMITS, kv_blocks=12),
        replace(LIMITS, max_num_seqs=3),
    ],
    ids=["prefix caching", "little KV", "few sequences"],
)
def test_a_certificate_is_accepted_for_every_limit_on_the_batch(engine):
    document, reproduce = sealed_plan(engine=engine)

    assert check_document(document, reproduce) == []


def test_a_certificate_is_accepted_where_some_requests_cost_nothing():
    # Prompts are free, so outputs of one token cost nothing but are in the window.
    tables = linear_tables(5e-3, 0, 0, 3e-4, 1e-6, max_batch=32, max_tokens=128)
    engine = replace(LIMITS, prefix_caching=True)

    document, reproduce = sealed_plan(tables, engine)

    assert check_document(document, reproduce) == []


def test_a_certificate_is_accepted_where_times_are_straight():
    document, reproduce = sealed_plan(straight_tables())

    assert check_document(document, reproduce) == []


@pytest.mark.parametrize("tokens", [1, 60, 61, 127, 128, 129, 200, 256, 257, 299])
def test_a_single_time_below_its_price_is_found(tokens):
    tables = straight_tables().reaching(300)
    engine = replace(LIMITS, max_num_batched_tokens=300)
    document, reproduce = sealed_plan(tables, engine)
    (inputs,) = reproduce(document).inputs
    fused_s = tables.fused_s.copy()
    fused_s[tokens] *= 0.5

    dented = inputs._replace(tables={**inputs.tables, "fused_s": fused_s})
    block = {**document["certificate"], "inputs_digest": inputs_digest(dented)}

    assert "beside" in check_bound(block, dented)[0]


def test_a_change_of_any_digit_is_refused():
    document, _ = sealed_plan()
    encoded = json.dumps(document)

    for match in re.finditer(r"\d", encoded):
        digit = str((int(match.group()) + 1) % 10)
        try:
            spoiled = json.loads(
                encoded[: match.start()] + digit + encoded[match.end() :]
            )
        except ValueError:
            continue
        if spoiled != document:
            assert check_document(spoiled) != []


def changed(document, **bound):
    """Return the document with other figures in its bound, sealed again."""
    block = document["certificate"]
    return seal(
        {**document, "certificate": {**block, "bound": {**block["bound"], **bound}}}
    )


def test_more_work_than_the_window_holds_is_refused():
    document, reproduce = sealed_plan()
    bound = document["certificate"]["bound"]

    more = changed(document, work_s=bound["work_s"] * 2)["certificate"]

    reasons = check_bound(more, reproduce(document).inputs[0])
    assert "s of work" in reasons[0]


@pytest.mark.parametrize("tables", [kinked_tables, straight_tables])
@pytest.mark.parametrize(
    ("price", "message"),
    [(0, "below"), (1, "below"), (3, "beside"), (4, "attention")],
)
def test_prices_above_an_iteration_time_are_refused(price, message, tables):
    document, reproduce = sealed_plan(tables())
    prices = list(document["certificate"]["bound"]["prices"])
    prices[price] *= 2

    block = changed(document, prices=prices)["certificate"]

    reasons = check_bound(block, reproduce(document).inputs[0])
    assert message in reasons[0]


def test_a_fixed_time_charged_to_prompts_and_to_steps_is_refused():
    # Ten requests that one replica serves in 30 ms by recomputing (1 ms a token)
    # instead of decoding (3 ms). 0.5 ms is charged as fixed time of each step, and in
    # the price of prompt tokens prefilled alone.
    columns = dict.fromkeys(COLUMNS, np.full(10, np.inf))
    columns |= dict.fromkeys(("arrival_s", "cached_tokens", "group"), np.zeros(10))
    columns |= {"prompt_tokens": np.ones(10), "output_tokens": np.full(10, 2)}
    columns |= {"e2e_s": np.full(10, 0.03)}
    engine = EngineSettings(max_num_batched_tokens=8, max_num_seqs=1)
    tables = linear_tables(0, 1e-3, 0, 3e-3, 0, max_batch=1, max_tokens=8)
    inputs = Inputs(columns, tables._asdict(), engine.document())
    bound = {
        "method": "busiest window",
        "replica_count": 2,
        "window_start_s": 0.0,
        "window_end_s": 0.03,
        "work_s": 0.035,
        "requests_in_window": 10,
        "prices": [0.5e-3, 2.5e-3, 0.0, 1e-3, 0.0],
        "mix": [0.0, 1.0, 0.0],
        "context_cap": 2e6,
        "droppable": 0,
    }

    reasons = check_bound(pool_proof(bound, inputs, [1.0]), inputs)

    assert "0 decoding requests beside 1 prompt tokens are below" in reasons[0]


@pytest.mark.parametrize(
    ("bound", "message"),
    [
        ({"droppable": 0}, "3 requests may miss"),
        ({"mix": [1.0, 0.5, 0.0]}, "more than all"),
        ({"requests_in_window": 7}, "7 is claimed"),
        ({"window_start_s": 0.5}, "s of work"),
        ({"replica_count": 1}, "do not make 1"),
        ({"method": "trust me"}, "proves no more than 1"),
        ({"prices": [1.0]}, "malformed"),
    ],
)
def test_a_false_figure_is_refused_even_under_a_fresh_digest(bound, message):
    document, reproduce = sealed_plan()

    reasons = check_document(changed(document, **bound), reproduce)

    assert any(message in reason for reason in reasons)


def test_a_plan_below_its_bound_or_its_target_is_refused():
    document, _ = sealed_plan()
    block = document["certificate"]

    few = seal({**document, "certificate": {**block, "replica_count": 1}})
    poor = {"passing": 0.98, "failing": 0.4}
    low = seal({**document, "certificate": {**block, "simulated": poor}})

    assert "fewer than the bound" in check_document(few)[0]
    assert "below 0.99" in check_document(low)[0]


def test_other_requests_tables_or_attainments_are_refused():
    document, reproduce = sealed_plan()
    _, other = sealed_plan(
        linear_tables(6e-3, 5e-5, 0, 3e-4, 1e-6, max_batch=32, max_tokens=128)
    )
    count = document["certificate"]["replica_count"]

    tables = check_document(document, other)
    attained = check_document(
        document,
        lambda plan: reproduce(plan)._replace(
            attained={(count,): 0.995, (count - 1,): 0.5}
        ),
    )

    assert "not those of the plan" in tables[0]
    assert f"0.5 in time at {count - 1} replicas" in attained[0]


@pytest.mark.parametrize(
    ("document", "message"),
    [({}, "no certificate"), ({"certificate": {"schema": "x"}}, "is 'x'")],
)
def test_a_plan_without_a_known_certificate_is_refused(document, message):
    assert message in check_document(document)[0]


def test_a_group_without_a_target_is_refused():
    document, reproduce = sealed_plan()
    block = {**document["certificate"], "group_targets": [0.995]}

    reasons = check_bound(block, reproduce(document).inputs[0])

    assert reasons == ["a request belongs to no group that has a target"]
