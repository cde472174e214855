import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.errors import InputError
from capplan.workload.slo import LIMITS, RequestSlo, Slo, parse_slo, require

INF = math.inf

limits_s = st.one_of(st.just(INF), st.sampled_from([0.01, 0.05, 1.0, 30.0]))
request_slos = st.builds(RequestSlo, *[limits_s] * len(LIMITS))
slos = st.builds(
    Slo,
    request_slos,
    by_class=st.dictionaries(st.sampled_from(["chat", "code"]), request_slos),
)


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("ttft=1s,tpot=30ms", (1.0, 0.03, INF, INF)),
        (" e2e = 2min , ttft=500ms", (0.5, INF, INF, 120.0)),
        ("tpot=50ms,tbt=0.2s", (INF, 0.05, 0.2, INF)),
        ("jct=20s", (INF, INF, INF, 20.0)),
    ],
)
def test_an_slo_is_read_with_its_units(text, limits):
    slo = parse_slo(text)

    assert slo == Slo(RequestSlo(*limits), 0.99)


def test_a_class_has_its_own_limits_or_the_default():
    slo = parse_slo(["ttft=1s", "chat:tpot=30ms"], attainment=0.9)

    assert slo.attainment == 0.9
    assert slo.of_class("chat") == RequestSlo(tpot_s=0.03)
    assert slo.of_class("code") == RequestSlo(ttft_s=1.0)


def test_a_class_without_limits_is_refused_with_the_classes_known():
    slo = parse_slo(["code:ttft=1s", "chat:tpot=30ms"])

    with pytest.raises(InputError, match=r"'batch' of the trace .* chat, code$"):
        slo.of_class("batch")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ttft", "'ttft' is not a limit"),
        ("itl=30ms", "expected one of ttft, tpot, tbt, e2e, jct"),
        ("ttft=1s,ttft=2s", "ttft is given twice"),
        ("e2e=1s,jct=1s", r"e2e is given twice \(jct is e2e\)"),
        ("ttft=1", "is not a duration"),
        ("tbt=-1ms", "tbt is -0.001 s; expected more than 0"),
        ("ttft=0s", "ttft is 0.0 s; expected more than 0"),
        ("", "is not a limit"),
    ],
)
def test_a_wrong_limit_is_refused(text, reason):
    with pytest.raises(InputError, match=reason):
        parse_slo(text)


@pytest.mark.parametrize("attainment", [0.0, -0.1, 1.1, math.nan])
def test_an_attainment_out_of_range_is_refused(attainment):
    with pytest.raises(InputError, match="attainment"):
        Slo(RequestSlo(), attainment)


def test_limits_by_request_follow_its_class():
    slo = parse_slo(["ttft=1s", "chat:ttft=2s,tpot=30ms"])

    ttft_s, tpot_s, tbt_s, e2e_s = slo.columns(np.array([1, 0, 1]), ("chat", "code"))

    assert ttft_s.tolist() == [1.0, 2.0, 1.0]
    assert tpot_s.tolist() == [INF, 0.03, INF]
    assert tbt_s.tolist() == e2e_s.tolist() == [INF, INF, INF]


def test_limits_by_class_are_a_table():
    slo = parse_slo(["ttft=1s", "chat:tpot=30ms,tbt=0.2s,jct=9s"])

    table_s = slo.table(("chat", "code"))

    assert table_s.tolist() == [[INF, 0.03, 0.2, 9.0], [1.0, INF, INF, INF]]


def test_a_class_named_with_limits_has_those_and_else_its_class():
    slo = parse_slo(["chat:ttft=1s,tpot=30ms", "code:tbt=0.2s"])
    names = ("chat/ttft=0.5s", "code", "chat", "new/e2e=5.0s", "a/b/ttft=2s")

    table_s = slo.table(names)

    assert table_s[0].tolist() == [0.5, 0.03, INF, INF]
    assert table_s[1].tolist() == [INF, INF, 0.2, INF]
    assert table_s[2].tolist() == [1.0, 0.03, INF, INF]
    assert table_s[3].tolist() == [INF, INF, INF, 5.0]
    assert table_s[4].tolist() == [2.0, INF, INF, INF]


def test_limits_in_names_leave_a_class_one_group():
    slo = parse_slo(["ttft=9s", "chat:ttft=1s"], targets={"code": 0.9})
    names = ("chat/ttft=0.5s", "code", "chat", "batch", "code/e2e=5.0s")

    groups = slo.groups(names)

    assert [group.names for group in groups] == [("chat",), ("code",), ("batch",)]
    assert [group.indices for group in groups] == [(0, 2), (1, 4), (3,)]
    assert [group.target for group in groups] == [0.99, 0.9, 0.99]
    assert slo.describe(names[:4]) == (
        "chat: ttft ≤ 500 ms to 1 s; code: ttft ≤ 9 s; batch: ttft ≤ 9 s"
    )


def test_the_limits_of_the_trace_are_an_slo():
    slo = parse_slo("trace")

    assert slo.of_class("all/tbt=0.2s") == RequestSlo(tbt_s=0.2)
    with pytest.raises(InputError, match="class 'all' of the trace has no SLO"):
        slo.of_class("all")


def test_the_mean_gap_is_limited_by_the_longest():
    assert RequestSlo(tpot_s=0.05, tbt_s=0.2).mean_gap_s == 0.05
    assert RequestSlo(tbt_s=0.2).mean_gap_s == 0.2


@pytest.mark.parametrize(
    ("slo", "reason"),
    [
        (None, "scheduler accelgen needs a limit on ttft .* class 'chat' has none"),
        (parse_slo("ttft=1s"), "tbt .* 'chat' .* --slo chat:tbt=1s"),
        (parse_slo(["ttft=1s", "chat:ttft=1s,tbt=1s"]), "tbt .* class 'code/ttft=2s'"),
    ],
)
def test_a_policy_names_the_class_that_lacks_its_limit(slo, reason):
    with pytest.raises(InputError, match=reason):
        require(slo, ("chat", "code/ttft=2s"), ("ttft", "tbt"), "scheduler accelgen")


def test_a_policy_takes_classes_that_all_have_its_limits():
    slo = parse_slo("tbt=1s")

    require(slo, ("chat", "code/ttft=2s"), ("tbt",), "scheduler accelgen")


def test_a_policy_may_take_another_limit_instead():
    slo = parse_slo(["chat:jct=1s", "code:ttft=1s"])
    kinds = ("ttft", "tbt")
    require(slo, ("chat",), kinds, "scheduler accelgen", instead="e2e")

    with pytest.raises(InputError, match=r"tbt, or on e2e, .* 'code'"):
        require(slo, ("chat", "code"), kinds, "scheduler accelgen", instead="e2e")


@pytest.mark.parametrize(
    ("texts", "class_names", "description"),
    [
        ("ttft=1s,tpot=30ms", ("all",), "ttft ≤ 1 s, tpot ≤ 30 ms"),
        (["chat:ttft=1s"], ("chat",), "ttft ≤ 1 s"),
        (
            ["e2e=1min", "chat:ttft=200ms"],
            ("chat", "code"),
            "chat: ttft ≤ 200 ms; code: e2e ≤ 60 s",
        ),
    ],
)
def test_an_slo_names_its_classes_where_there_are_several(
    texts, class_names, description
):
    assert parse_slo(texts).describe(class_names) == description


def test_an_slo_without_limits_says_so():
    assert Slo(RequestSlo()).describe(("all",)) == "no limits"


def test_shared_limits_are_finite_and_equal_in_all_classes():
    slo = parse_slo(["ttft=1s,tpot=30ms", "chat:ttft=1s,tpot=50ms"])

    assert slo.shared_limits_s(("chat", "code")) == {"ttft": 1.0}
    assert slo.shared_limits_s(("code",)) == {"ttft": 1.0, "tpot": 0.03}


def test_the_strictest_limits_may_come_from_different_classes():
    slo = parse_slo(["ttft=1s,tpot=30ms", "chat:ttft=200ms", "batch:tpot=20ms"])

    assert slo.strictest() == RequestSlo(0.2, 0.02)
    assert slo.strictest(("chat", "code")) == RequestSlo(0.2, 0.03)
    assert Slo(None).strictest() == RequestSlo()


@given(slo=slos)
def test_the_strictest_slo_is_at_least_as_strict_as_each_class(slo):
    names = ("chat", "code", "batch")

    strictest, shared = slo.strictest(names), slo.shared_limits_s(names)

    columns = zip(LIMITS, slo.columns(np.arange(3), names), strict=True)
    for name, by_class_s in columns:
        assert strictest.limit_s(name) == by_class_s.min()
        alike = (by_class_s == by_class_s[0]).all() and np.isfinite(by_class_s[0])
        assert shared.get(name) == (by_class_s[0] if alike else None)
    assert slo.strictest() == strictest  # "batch" has the default


@pytest.mark.parametrize(
    ("targets", "text"),
    [
        ({}, "99 %"),
        ({"a": 0.95}, "95 % of a, 99 % of b and c and d and e"),
        (dict.fromkeys("abcde", 0.9), "90 % of each of 5 groups of classes"),
        (
            dict(zip("abcde", (0.9, 0.95, 0.999, 0.99, 0.99), strict=True)),
            "90 % to 99.9 % of each of 5 groups of classes",
        ),
    ],
)
def test_the_shares_asked_are_said_by_class(targets, text):
    slo = parse_slo("ttft=1s", targets=targets)

    assert slo.describe_targets(tuple("abcde")) == text


def test_the_share_asked_of_one_class_is_its_own():
    slo = parse_slo("ttft=1s", targets={"chat": 0.95})

    assert slo.shared_target(("chat",)) == 0.95
    assert slo.shared_target(("chat", "code")) == 0.99
    assert slo.describe_targets(("chat/ttft=1s", "chat/ttft=2s")) == "95 %"
