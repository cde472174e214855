"""Tiers of host memory: what is free, what more costs, and which size a plan takes."""

import json
import warnings
from types import SimpleNamespace

import pytest

from capplan.deployment.tier import parse_size
from capplan.errors import InputError
from capplan.planning.configure.configuration import Configuration, configurations
from capplan.planning.configure.excluded import Excluded
from capplan.planning.configure.launch import launch
from capplan.planning.plan import plan as module
from capplan.planning.plan.plan import plan
from capplan.planning.plan.planned import Search
from capplan.planning.plan.tier_search import TierTried
from capplan.planning.settings.plan import PlanSettings, SimulateSettings
from capplan.report.pages.plan import plan_values
from capplan.report.received.verify import verify
from capplan.report.render.json_text import json_text

pytestmark = pytest.mark.filterwarnings("ignore")
KIMI = {"llm": "Kimi-K2.5", "gpu": "B200-SXM", "tp": "8", "price": "B200-SXM=5"}
KIMI |= {"slo": "turn:ttft=3s", "workload": "agents-coding", "sessions": "4"}


def rows(**given):
    return list(configurations(PlanSettings(**{**KIMI, **given})))


@pytest.mark.parametrize(
    ("text", "kept"), [("64", "64"), ("1e3", "1000"), ("50 %", "50%"), ("auto", "auto")]
)
def test_a_size_is_gib_a_share_or_to_be_found(text, kept):
    assert parse_size(text) == kept
    assert PlanSettings(**KIMI, kv_offloading_size=text).kv_offloading_size == kept


@pytest.mark.parametrize("text", ["lots", "-1", "101%", "nan", "1e9"])
def test_other_sizes_are_refused(text):
    with pytest.raises(InputError, match="expected GiB, a share of the host memory"):
        parse_size(text)


def test_a_share_is_of_three_quarters_of_the_least_memory_of_a_node():
    """Nebius' eight B200 have 1,792 GiB: 1,344 are free for eight, half of it 672."""
    (row,) = rows(kv_offloading_size="50%")

    assert row.engine.tier.gib == 672
    # One copy of latent attention for all GPUs, in whole pages.
    pages = -(-row.engine.kv_block_bytes // 4096)
    assert row.engine.tier.chunks == 672 * 2**30 // (4096 * pages)
    assert row.price.usd_per_gpu_h == 5


def test_more_than_is_free_is_refused_without_a_price_and_paid_with_one():
    (without,) = rows(kv_offloading_size="2000")
    (paid,) = rows(kv_offloading_size="2000", tier_price=0.73)

    assert isinstance(without, Excluded)
    assert "656 GiB more than is free of 75 % of the host memory" in without.reason
    # 656 GiB at $0.73 a month are $0.656 an hour, of eight GPUs.
    assert paid.price.usd_per_gpu_h == pytest.approx(5.082)
    assert "82 GiB of host memory a GPU" in paid.price.note


def test_nothing_is_free_on_nodes_of_ones_own():
    (row,) = rows(kv_offloading_size="10", kind="owned")
    (paid,) = rows(kv_offloading_size="8", kind="owned", tier_price=7.30)

    assert "more than is free of your own nodes" in row.reason
    assert paid.price.usd_per_gpu_h == pytest.approx(5.01)


def test_a_price_of_memory_without_a_tier_is_refused():
    with pytest.raises(InputError, match="tier_price has no tier"):
        PlanSettings(**KIMI, tier_price=1)


def test_a_fleet_that_is_given_has_no_size_to_be_found():
    given = {**KIMI, "replicas": 1, "kv_offloading_size": "auto"}

    with pytest.raises(InputError, match="capplan plan finds it"):
        list(configurations(SimulateSettings(**given)))


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        (
            {"kv_offloading_size": "64"},
            {"--kv-offloading-size": "64", "--kv-offloading-backend": "native"},
        ),
        (
            {"tier": "lmcache:gib=64"},
            {"--kv-offloading-size": "64", "--kv-offloading-backend": "lmcache"},
        ),
        (
            {"tier": "vllm-native:gib=1,blocks_per_chunk=16,answers=1"},
            {
                "--kv-transfer-config": '{"kv_connector":"OffloadingConnector",'
                '"kv_role":"kv_both","kv_connector_extra_config":{"cpu_bytes_to_use":'
                '1073741824,"blocks_per_chunk":16,"offload_prompt_only":false}}'
            },
        ),
        ({}, {}),
    ],
)
def test_the_launch_line_has_the_tier(settings, flags):
    asked = PlanSettings(**{**KIMI, **settings})
    (row,) = [x for x in configurations(asked) if isinstance(x, Configuration)]

    found = launch(row, asked).flags

    assert {k: v for k, v in found.items() if "kv-off" in k or "transfer" in k} == flags


def found_sizes(monkeypatch, usd, in_full):
    """Return the sizes tried and the one taken, of plans that cost so much by size.

    ``in_full`` has what a size costs where all candidates are searched with it.
    """
    best = SimpleNamespace(key=("GPU", "TP 1"))

    def searched(settings, *_):
        size = settings.kv_offloading_size
        of = SimpleNamespace(best=best, interrupted=False, usd=usd[size])
        return Search(SimpleNamespace(size=size), [], of, [], [])

    def begun(settings, *_):
        return SimpleNamespace(size=settings.kv_offloading_size), [], []

    def less(size, *_):
        return TierTried(size, 1.0, 1 if usd[size] == usd["100%"] else None, usd[size])

    def completed(search, *_, **__):
        size = search.inputs.size
        of = SimpleNamespace(usd=in_full.get(size, usd[size]), interrupted=False)
        return search._replace(plan=of)

    def ended(search, rows):
        raise StopIteration([row.size for row in rows], search.inputs.size)

    for name, stub in {
        "_priced": searched,
        "inputs_of": begun,
        "of_best": lambda asked, _: asked,
        "with_less": less,
        "tried_size": lambda size, of: TierTried(size, 0.0, of.usd and 1, of.usd),
        "_completed": completed,
        "_with_tiers": ended,
    }.items():
        monkeypatch.setattr(module, name, stub)
    with pytest.raises(StopIteration) as taken:
        plan(PlanSettings(**KIMI, kv_offloading_size="auto"))
    return taken.value.args


@pytest.mark.parametrize(
    ("usd", "in_full", "tried", "taken"),
    [
        ({"0": 8, "100%": 8}, {}, ["0", "100%"], "0"),
        ({"0": 8, "100%": None}, {}, ["0", "100%"], "0"),
        ({"0": 8, "100%": 6, "50%": 7}, {}, ["0", "100%", "50%"], "100%"),
        (
            {"0": 8, "100%": 6, "50%": 6, "25%": 6, "12.5%": 8},
            {},
            ["0", "100%", "50%", "25%", "12.5%"],
            "25%",
        ),
        (
            {"0": 8, "100%": 6, "50%": 6, "25%": 7},
            {"50%": 7},
            ["0", "100%", "50%", "25%"],
            "100%",
        ),
        ({"0": None, "100%": 6, "50%": 7}, {}, ["0", "100%", "50%"], "100%"),
    ],
)
def test_the_smallest_size_is_taken_with_which_the_best_holds(
    monkeypatch, usd, in_full, tried, taken
):
    assert found_sizes(monkeypatch, usd, in_full) == (tried, taken)


@pytest.mark.slow
def test_a_tier_saves_a_gpu_and_the_plan_is_verified(tmp_path):
    settings = PlanSettings(
        workload="agents-coding:n=60",
        sessions="24",
        wait_cap="60s",
        llm="Qwen3-8B",
        gpu="L40S",
        tp="1",
        slo="turn:ttft=20s,tpot=100ms",
        kv_offloading_size="auto",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = plan(settings)

    none, *others = found.tiers_tried.rows
    chosen = found.tiers_tried.chosen_gib
    assert none.gpu_count > found.best.gpu_count
    assert chosen in [row.gib for row in others]
    assert found.best.run.configuration.engine.tier.gib == chosen
    assert found.sessions.tier_hit_rate > 0
    path = tmp_path / "plan.json"
    path.write_text(json_text(plan_values(found)))
    assert json.loads(path.read_text())["tiers_tried"]["chosen_gib"] == chosen
    assert verify(path, simulate=True) == []
