"""Two plans: effects add to the cent, and every input that differs is named."""

import copy
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.errors import InputError
from capplan.report.pages.diff import (
    MOST_CHARACTERS,
    diff_page,
    signed_usd,
)
from capplan.report.received.plan_diff import Rise, cents, parse_rise, plan_diff
from capplan.report.received.plan_figures import plan_figures
from capplan.report.render.json_text import json_text
from capplan.report.render.markdown import markdown


def diff_markdown(diff):
    return markdown(diff_page(diff))


def priced(gpu="H100-SXM", tp=4, replicas=4, usd=6.88, per_node=8, **more):
    """Return a feasible candidate as plan.json has it, on nodes of so many GPUs."""
    gpus = replicas * tp
    nodes = -(-gpus // per_node)
    hour = nodes * per_node * usd
    node = {"node": f"{per_node}x", "provider": "AWS", "count": nodes}
    node |= {"gpus_paid": nodes * per_node, "stranded_gpus": nodes * per_node - gpus}
    return {
        "gpu": gpu,
        "tp": tp,
        "status": "feasible",
        "replica_count": replicas,
        "gpu_count": gpus,
        "lower_bound_gpu_count": 12,
        "slo_attainment": 0.9938,
        "usd_per_month": 730 * hour,
        "price": {"usd_per_gpu_h": usd, "source": "AWS", "as_of": "2026-11-09"},
        "nodes": [{**node, "usd_per_h": hour}],
        "engine": {"max_num_batched_tokens": 8192},
        "pools": [],
        **more,
    }


def infeasible(gpu="H100-SXM", tp=4):
    """Return a candidate that no count of serves."""
    why = {"infeasible_reason": "TPOT is above its limit", "pruned_reason": None}
    return {"gpu": gpu, "tp": tp, "status": "infeasible", "pools": [], **why}


def document(*candidates, **more):
    """Return a plan whose best candidate is the first, if that is feasible."""
    is_served = bool(candidates) and candidates[0]["status"] == "feasible"
    return {
        "schema": "capplan.plan/2",
        "status": "feasible" if is_served else "infeasible",
        "llm": "Llama-3.1-70B",
        "best": candidates[0] if is_served else None,
        "candidates": list(candidates),
        "settings": {"rate": 68.0, "slo": ["ttft=1s"]},
        "rate_per_s": 68.0,
        "certificate": None,
        "interrupted": False,
        **more,
    }


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Compare two documents, through files."""
    folder = tmp_path_factory.mktemp("diff")

    def compare(old, new):
        figures = []
        for name, content in (("old.json", old), ("new.json", new)):
            (folder / name).write_text(json.dumps(content))
            figures.append(plan_figures(folder / name))
        return plan_diff(*figures)

    return compare


def test_a_node_more_at_the_same_price_is_volume_alone(compared):
    # 4 replicas of 4 GPUs are 2 nodes of 8, 5 are 3 nodes with 4 GPUs to spare;
    # a node of 8 × $6.88 costs $40,179.20 in 730 h.
    diff = compared(document(priced()), document(priced(replicas=5)))

    assert diff.effects.total_cents == 4_017_920
    assert diff.effects.volume_cents == 4_017_920
    assert diff.effects.price_cents == diff.effects.rest_cents == 0
    assert diff.lines[0].new.stranded_gpus == 4
    assert diff.share == pytest.approx(0.5)


def test_price_moves_the_old_gpus_and_volume_counts_at_the_new_price(compared):
    # Old: 16 GPUs × $6 × 730 h = $70,080; new: 24 × $5 × 730 h = $87,600.
    # Price: 16 × -$1 × 730 = -$11,680; volume: 8 × $5 × 730 = $29,200.
    diff = compared(document(priced(usd=6)), document(priced(replicas=6, usd=5)))

    assert diff.effects.price_cents == -1_168_000
    assert diff.effects.volume_cents == 2_920_000
    assert diff.effects.total_cents == 1_752_000


def test_another_configuration_is_a_line_added_and_one_removed(compared):
    diff = compared(document(priced(tp=4)), document(priced(tp=8, replicas=1)))

    assert [line.sign for line in diff.lines] == ["-", "+"]
    assert diff.effects.rest_cents == diff.effects.total_cents == -4_017_920


candidates = st.builds(
    priced,
    tp=st.sampled_from((1, 2, 4)),
    replicas=st.integers(1, 400),
    usd=st.floats(0.01, 200),
    per_node=st.sampled_from((1, 2, 4, 8)),
)


@given(candidates, candidates)
def test_the_effects_add_up_to_the_cent(compared, old, new):
    diff = compared(document(old), document(new))
    effects = diff.effects

    parts = effects.price_cents + effects.volume_cents + effects.rest_cents
    assert parts == effects.total_cents
    assert effects.total_cents == cents(new["usd_per_month"]) - cents(
        old["usd_per_month"]
    )
    lines = [line for line in diff.lines if line.price_cents is not None]
    for line in lines:  # to half a cent each, what the words promise
        before, after = line.old, line.new
        prices = [pool.usd_per_month / pool.gpus_paid for pool in (before, after)]
        volume = 100 * prices[1] * (after.gpus_paid - before.gpus_paid)
        price = 100 * before.gpus_paid * (prices[1] - prices[0])
        assert abs(line.volume_cents - volume) <= 1 + 1e-6
        assert abs(line.price_cents - price) <= 1 + 1e-6
        assert effects.rest_cents == 0


@given(candidates, candidates)
def test_the_change_back_is_the_change_with_the_other_sign(compared, old, new):
    there = compared(document(old), document(new)).effects.total_cents
    back = compared(document(new), document(old)).effects.total_cents

    assert there == -back


def pool(role, tp, replicas, usd):
    row = priced(tp=tp, replicas=replicas, usd=usd, per_node=1)
    return {**row, "role": role, "nodes": None}


def test_two_pools_are_lines_of_their_own_and_add_up(compared):
    def apart(prefill, decode):
        pools = [pool("prefill", 2, prefill, 3.0), pool("decode", 4, decode, 3.0)]
        gpus = 2 * prefill + 4 * decode
        usd = 730 * 3.0 * gpus
        row = priced(pools=pools, usd_per_month=usd, nodes=None)
        return {**row, "tp": None}

    diff = compared(document(apart(2, 3)), document(apart(3, 3)))

    assert [str(line.either) for line in diff.lines] == [
        "H100-SXM × TP 2, prefill",
        "H100-SXM × TP 4, decode",
    ]
    assert [line.sign for line in diff.lines] == ["~", "="]
    assert diff.effects.volume_cents == diff.effects.total_cents == 438_000


def test_pools_that_share_nodes_have_their_parts_of_the_bill(compared):
    # 2 × 2 + 3 × 4 = 16 GPUs are 2 nodes of 8 at $40 each, 18 GPUs are 3.
    def apart(prefill):
        pools = [pool("prefill", 2, prefill, 5.0), pool("decode", 4, 3, 5.0)]
        count = -(-(2 * prefill + 12) // 8)
        node = {"node": "8x", "provider": "AWS", "count": count}
        node |= {"gpus_paid": 8 * count, "usd_per_h": 40.0 * count}
        usd = 730 * 40.0 * count
        row = priced(pools=pools, nodes=[node], usd_per_month=usd)
        return {**row, "tp": None, "gpu_count": 2 * prefill + 12}

    diff = compared(document(apart(2)), document(apart(3)))

    old, new = ([getattr(line, side) for line in diff.lines] for side in ("old", "new"))
    assert [part.gpus_paid for part in old] == [4, 12]
    assert [part.gpus_paid for part in new] == [8, 16]
    assert diff.effects.price_cents == diff.effects.rest_cents == 0
    assert diff.effects.volume_cents == 100 * 730 * 40
    assert "2 → 3" in diff_markdown(diff)


def test_a_plan_against_itself_says_that_nothing_changed(compared):
    same = document(priced(), infeasible(tp=1))

    diff = compared(same, copy.deepcopy(same))

    assert diff_page(diff).headline == "Nothing changed"
    assert not diff.exceeds(Rise())
    assert [line.sign for line in diff.lines] == ["="]
    assert not any(vars(diff.effects).values())


@pytest.mark.parametrize(
    ("old", "new", "said", "fails"),
    [
        (infeasible(), priced(), "Feasible now, at $80,358.40 a month", True),
        (priced(), infeasible(), "No configuration holds the SLO now", True),
        (infeasible(), infeasible(tp=8), "No configuration holds the SLO, bef", False),
    ],
)
def test_plans_without_an_answer_are_compared_too(compared, old, new, said, fails):
    diff = compared(document(old), document(new))

    assert diff_page(diff).headline.startswith(said)
    assert diff.effects is None
    assert diff.exceeds(Rise(0.1)) is fails
    assert diff_markdown(diff)


def test_without_a_price_gpus_are_compared(compared):
    def free(n):
        return priced(replicas=n, price=None, nodes=None, usd_per_month=None)

    diff = compared(document(free(4)), document(free(5)))

    assert diff_page(diff).headline.startswith("GPUs 16 → 20; costs cannot be")


def test_the_inputs_that_differ_are_the_causes(compared):
    old = document(priced(), trace_sha256="a" * 64)
    new = document(
        priced(
            engine={"max_num_batched_tokens": 4096},
            price={"usd_per_gpu_h": 6.88, "source": "AWS", "as_of": "2026-12-01"},
            profile_note="another profile",
        ),
        trace_sha256="b" * 64,
        settings={"rate": 83.0, "slo": ["ttft=1s"], "attainment": 0.999},
        rate_per_s=83.0,
    )

    diff = compared(old, new)

    assert [str(cause) for cause in diff.causes] == [
        "rate 68 → 83",
        "attainment default → 0.999",
        "content of the trace sha256 aaaaaaaaaaaa → sha256 bbbbbbbbbbbb",
    ]
    assert [cause.what for cause in diff.lines[0].causes] == [
        "price",
        "profile: profile_note",
        "engine: max_num_batched_tokens",
    ]


def test_settings_by_gpu_are_compared_one_by_one(compared):
    old, new = ({"price": {"H100-SXM": usd, "L4": "1"}} for usd in ("2.49", "2.29"))

    diff = compared(document(priced(), settings=old), document(priced(), settings=new))

    assert [str(cause) for cause in diff.causes] == ["price H100-SXM 2.49 → 2.29"]


def test_a_line_says_why_and_that_its_price_is_the_same(compared):
    new = document(priced(replicas=5), settings={"rate": 83.0, "slo": ["ttft=1s"]})

    text = diff_markdown(compared(document(priced()), new))

    said = "because: rate 68 → 83; price unchanged ($6.88/GPU-h, AWS, 2026-11-09)"
    assert said in text
    assert "| nodes (8 GPUs) | 2 | 3 | +1 |" in text
    assert "| GPUs idle | 0 | 4 | +4 |" in text


def test_a_trace_that_moved_is_no_cause(compared):
    def of(path):
        settings = {"trace": path}
        return document(priced(), settings=settings, trace_sha256="a" * 64)

    assert compared(of("a.csv"), of("b/a.csv")).causes == ()


def test_texts_that_differ_far_behind_are_shown_to_differ(compared):
    old, new = ({"note": "x" * 200 + end} for end in "ab")

    (cause,) = compared(
        document(priced(), settings=old), document(priced(), settings=new)
    ).causes

    assert cause.old != cause.new


def test_markdown_of_500_candidates_with_long_names_fits_a_comment(compared):
    def of(usd):
        rows = [
            priced(gpu=f"GPU-{k}-{'<|`' * 500}", usd=usd, pruned_reason="y" * 5000)
            for k in range(500)
        ]
        settings = {f"setting {k}": "|" * 3000 + str(usd) for k in range(300)}
        return document(*rows, settings=settings)

    diff = compared(of(1.0), of(2.0))
    text = diff_markdown(diff)

    assert len(text) <= MOST_CHARACTERS
    assert "more configurations changed: --format json has all" in text
    assert len(json.loads(json_text(diff_page(diff).values()))["candidates"]) == 500


def test_the_configuration_that_is_best_now_is_marked(compared):
    small, large = priced(), priced(tp=8, usd=5.0)
    diff = compared(
        document(large, small), document(small, {**large, "usd_per_month": 1})
    )

    table = diff_page(diff).sections[-1].tables[0]

    marks = {row.name: table.style(row) for row in diff.candidates}
    assert marks == {diff.new.best.name: "best", diff.old.best.name: ""}


def test_no_name_is_taken_as_markup(compared):
    spoiled = "<script>alert(1)</script> | `x` **b** [a](http://b)"

    text = diff_markdown(
        compared(document(priced(gpu=spoiled)), document(priced(gpu=spoiled, usd=7)))
    )

    assert not re.search(r"(?<!\\)<(?!/?(details|summary)>)", text)
    for line in text.splitlines():
        if line.startswith("| ~"):
            assert len(re.findall(r"(?<!\\)\|", line)) == 5


def test_json_adds_up_as_the_page_does(compared):
    page = diff_page(compared(document(priced()), document(priced(replicas=5))))
    values = page.values()

    assert values["schema"] == "capplan.diff/1"
    assert values["usd_per_month_change"] == 40179.20
    assert values["lines"][0]["new"]["node_count"] == 3


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        ({"usd_per_month": "much"}, "best.usd_per_month is 'much'"),
        ({"usd_per_month": -1}, "best.usd_per_month is '-1'"),
        ({"replica_count": 0}, "best.replica_count is '0'"),
        ({"replica_count": None}, "best.replica_count is 'None'"),
        ({"gpu": None}, "best.gpu is 'None'"),
        ({"pools": {}}, "best.pools is '{}'"),
        ({"nodes": [{"gpus_paid": 1}]}, "at least the 16 GPUs"),
        ({"price": 3}, "best.price is '3'"),
        ({"engine": []}, "best.engine is '[]'"),
    ],
)
def test_a_file_that_no_plan_has_is_refused_with_its_place(compared, spoil, said):
    row = priced(**spoil)

    with pytest.raises(InputError, match=re.escape(said)):
        compared(document(row), document(priced()))


def test_a_configuration_that_stands_twice_is_refused(compared):
    with pytest.raises(InputError, match="appears twice"):
        compared(document(priced(), priced()), document(priced()))


@pytest.mark.parametrize(
    "text", ["", "10", "-1%", "x%", "nan%", "inf%", "1%2", "$", "$-1", "$5%", "$inf"]
)
def test_a_limit_that_is_no_percentage_is_refused(text):
    with pytest.raises(
        InputError, match=r"expected a percentage such as 10%, or \$5000"
    ):
        parse_rise(text)


def test_a_rise_of_exactly_the_limit_passes(compared):
    diff = compared(document(priced(usd=1)), document(priced(usd=1.1)))

    assert not diff.exceeds(Rise(0.10))
    assert diff.exceeds(Rise(0.0999))


@given(st.integers(-(10**12), 10**12))
def test_an_amount_reads_back_to_the_cent(amount):
    text = signed_usd(amount).replace("$", "").replace(",", "").replace("−", "-")

    assert round(float(text) * 100) == amount
