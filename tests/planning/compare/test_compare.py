"""Serving systems compared: price, equal hardware, and what is refused."""

import csv
import json
from dataclasses import replace
from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

import capplan
from capplan.cli.main import exit_code
from capplan.errors import InputError
from capplan.planning.compare.compare import CURVE, _curves, compare
from capplan.planning.compare.settings import CompareSettings
from capplan.planning.compare.systems import SYSTEMS, resolve
from capplan.planning.evaluate.highest_rate import STEP
from capplan.planning.settings.plan import PlanSettings
from capplan.planning.size.cautions import largest_of_alike
from capplan.report.compare_answer import winners
from capplan.report.pages.comparison import comparison_page
from capplan.report.render.terminal import print_page

ASKED = {
    "workload": "synthetic:prompt=300,output=lognormal(median=80,sigma=0.6),n=2000",
    "rate": 60,
    "llm": "Llama-3.1-8B",
    "gpu": "H100-SXM",
    "tp": 1,
    "slo": "ttft=500ms,tpot=20ms",
    "price": "H100-SXM=2.5",
    "as_of": "2026-11-01",
}
SARATHI = {
    "scheduler": "sarathi",
    "max_num_batched_tokens": 512,
    "max_num_seqs": 128,
}

pytestmark = pytest.mark.thorough


def plain(**more):
    return PlanSettings(**{**ASKED, **more})


def settings(**more):
    return CompareSettings(**{**ASKED, **more})


@pytest.fixture(scope="module")
def found():
    return compare(
        settings(systems="vllm-v1,sarathi,orca", rates=(30, 60, 90), published=True)
    )


def test_the_price_is_that_of_a_plan_of_the_same_system(found):
    alone = capplan.plan(**ASKED, **SARATHI)

    sarathi = found.systems[1]
    assert sarathi.status == "feasible"
    assert sarathi.candidate.gpu_count == alone.best.gpu_count
    assert sarathi.candidate.cost.usd_per_h == alone.best.cost.usd_per_h
    assert sarathi.candidate.bound == alone.best.bound


def test_the_best_of_many_configurations_is_that_of_a_plan():
    asked = {**ASKED, "gpu": "H100-SXM,A100-80GB-SXM", "tp": "1,2", "rate": 120}
    given = {**asked, "price": "H100-SXM=2.5,A100-80GB-SXM=1.6"}
    alone = capplan.plan(**given, tune=False).best

    asked = CompareSettings(**given, systems="vllm-v1", published=True)
    best = compare(asked).systems[0].candidate

    assert (best.gpu, best.tp, best.replica_count) == (
        alone.gpu,
        alone.tp,
        alone.replica_count,
    )
    assert best.cost.usd_per_h == alone.cost.usd_per_h


def test_equal_hardware_is_what_a_simulation_says(found):
    alone = capplan.simulate(**ASKED, **SARATHI, replicas=found.replica_count)

    served = found.systems[1].served
    assert found.replica_count == found.systems[0].candidate.replica_count
    assert served.slo_attainment == alone.judgement.attainment.share
    assert served.goodput_per_s == alone.goodput_per_s
    assert served.latency_s == alone.judgement.percentiles
    assert served.output_tokens_per_s == alone.output_tokens_per_s


def test_no_more_requests_are_good_than_arrive(found):
    for row in found.systems:
        assert [served.rate_per_s for served in row.curve] == [30, 60, 90]
        for served in row.curve:
            assert served.goodput_per_s <= served.rate_per_s * (1 + 1e-9)


def test_a_fleet_whose_queue_grows_has_no_more_goodput_than_it_finishes():
    run = capplan.simulate(**{**ASKED, "slo": "tpot=1s", "rate": 300}, replicas=1)

    totals, load = run.simulation.totals, run.judgement.steadiness
    assert run.judgement.attainment.share == 1
    assert not run.judgement.stable
    assert run.goodput_per_s == pytest.approx(totals.rate_per_s / load.utilisation)
    assert run.goodput_per_s < 0.9 * totals.rate_per_s


@pytest.mark.slow
def test_by_default_a_curve_is_about_the_highest_rate_of_its_system():
    found = compare(settings(systems="fastgen,orca,vllm-v0:padded_budget=1"))

    seen = set()
    for system in found.systems:
        rates = [each.rate_per_s for each in system.curve]
        held_per_s = system.max_rate_per_s
        assert rates == pytest.approx(
            [share * held_per_s for share in CURVE] if held_per_s else rates[:1],
            rel=0.01,
        )
        seen |= set(rates)
    assert found.rates_per_s == tuple(sorted(seen))
    assert len({system.max_rate_per_s for system in found.systems}) > 1


def test_a_system_that_holds_no_rate_is_seen_at_one():
    none, some = SimpleNamespace(most=None), SimpleNamespace(most=8)
    requests = SimpleNamespace(own=30.0, rounded=float)

    assert _curves([none], requests) == [(18.0,)]
    assert _curves([none, some], requests) == [(4.8,), (4.8, 6.4, 8.0, 9.6, 11.2)]


def test_a_warning_of_several_systems_stands_once():
    texts = largest_of_alike(
        ["an iteration had 90 tokens", "b", "an iteration had 123 tokens"]
    )

    assert texts == ["an iteration had 123 tokens", "b"]


def test_a_rate_held_is_met_and_the_next_is_not(found):
    row = found.systems[1]
    asked = {**ASKED, **SARATHI, "replicas": found.replica_count}

    above = capplan.simulate(**{**asked, "rate": row.max_rate_per_s * STEP**3})
    below = capplan.simulate(**{**asked, "rate": row.max_rate_per_s / STEP**3})

    assert above.judgement.meets is False
    assert below.judgement.meets is True


def test_the_most_of_a_system_does_not_depend_on_those_compared_with_it(found):
    alone = compare(settings(systems="sarathi", rates=60, published=True, replicas=1))

    beside = found.systems[1]

    assert found.replica_count == 1
    assert alone.systems[0].max_rate_per_s == beside.max_rate_per_s
    assert alone.systems[0].served == beside.served


def test_a_looser_slo_holds_no_lower_rate(found):
    looser = compare(
        settings(systems="sarathi", slo="ttft=2s,tpot=40ms", rates=60, replicas=1)
    )
    strict = compare(settings(systems="sarathi", rates=60, replicas=1))

    assert looser.systems[0].max_rate_per_s >= strict.systems[0].max_rate_per_s


def test_the_flags_of_the_scenario_win_and_this_is_said():
    given = plain(max_num_batched_tokens=2048)
    asked = resolve("sarathi", given, 900, published=True)

    assert asked.settings.max_num_batched_tokens == 2048
    assert asked.settings.max_num_seqs == 128
    assert asked.given == ("max_num_batched_tokens 2048 in place of 512",)


def test_a_scheduler_with_settings_keeps_the_other_flags_of_its_system():
    both = settings(systems="static:max_len=900,padded=1,sarathi").systems
    asked = resolve("static:max_len=900", plain(), 700, published=True)

    assert both == ("static:max_len=900,padded=1", "sarathi")
    assert asked.settings.scheduler == "static:max_len=900"
    assert asked.settings.max_num_seqs == 128


def test_each_request_is_given_the_room_of_the_longest_that_is_taken():
    assert resolve("orca", plain(), 700).settings.scheduler == ("orca:max_len=700")
    v0 = resolve("vllm-v0", plain(), 9000)
    assert (v0.room_tokens, v0.budgets) == (9000, (9000, 4096, 2048, 1024, 512))
    assert v0.settings.max_num_batched_tokens == 9000


def test_a_budget_of_whole_prompts_is_at_least_the_published_one():
    short = resolve("trtllm", plain(), 700, published=True).settings
    long = resolve("trtllm", plain(), 9000, published=True).settings
    cut = resolve("trtllm:chunked=1", plain(), 700, published=True).settings

    assert short.max_num_batched_tokens == cut.max_num_batched_tokens == 8192
    assert long.max_num_batched_tokens == 9000
    assert short.max_num_seqs == 2048


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system_can_be_asked_for(name):
    asked = resolve(name, plain(host_kv_gib=8.0, link_gb_per_s=12.0), 700)

    published = resolve(name, plain(), 700, published=True)
    assert asked.source
    assert asked.settings.tune is bool(asked.budgets)
    assert published.settings.tune is False


def test_kv_of_8_bit_is_not_put_into_blocks_that_were_counted():
    asked = resolve("alise", plain(), 700)
    counted = resolve("alise", plain(kv_blocks=900), 700)

    assert (asked.settings.kv_cache_dtype, asked.given) == ("fp8", ())
    assert counted.settings.kv_cache_dtype == "auto"
    assert counted.given == ("kv_blocks 900 in place of fp8 KV",)


def test_predictions_of_the_trace_win():
    asked = resolve("alise", plain(), 700, predicted=True)

    assert asked.settings.predictor is None
    assert asked.given == ("predictions of the trace",)


def test_a_system_without_its_slo_kind_is_named_and_not_run():
    result = compare(settings(systems="accelgen,sarathi", rates=60, replicas=1))

    accelgen, sarathi = result.systems
    assert accelgen.status == "refused"
    assert "needs a limit on tbt" in accelgen.reason
    assert sarathi.served is not None


def test_where_no_system_runs_the_reasons_are_given():
    with pytest.raises(InputError, match=r"no system runs: accelgen: .* tbt"):
        compare(settings(systems="accelgen"))


def test_where_none_is_feasible_equal_hardware_needs_replicas():
    slow = compare(settings(systems="sarathi", slo="tpot=1ms"))
    given = compare(settings(systems="sarathi", slo="tpot=1ms", replicas=1, rates=9))

    assert slow.systems[0].status == "infeasible"
    assert "tpot" in slow.systems[0].reason.lower()
    assert "--replicas" in slow.systems[0].not_served
    assert given.systems[0].served.slo_attainment == 0
    assert given.systems[0].max_rate_per_s is None


def test_systems_are_a_list():
    with pytest.raises(InputError, match="expected a list such as"):
        settings(systems={"orca": {"max_len": 10}})


def test_a_comparison_that_none_meets_ends_with_3(capsys):
    flags = [f"--{name}={value}" for name, value in ASKED.items() if name != "as_of"]

    code = exit_code(["compare", *flags, "--systems", "sarathi", "--slo", "tpot=1ms"])

    assert code == 3
    assert "No system compared holds tpot ≤ 1 ms." in capsys.readouterr().out


RAISING = """
from capplan.simulator.jit import compiled
from capplan.simulator.schedulers import Rules
from capplan.simulator.state import SCHEDULE

RULES = Rules()


@compiled(SCHEDULE)
def schedule(state, r):
    if state.replicas[r].waiting_count > 0:
        raise ValueError("boo")
    return 0
"""


def test_a_scheduler_of_the_user_that_fails_leaves_the_others(tmp_path):
    path = tmp_path / "raising.py"
    path.write_text(RAISING)

    shipped, raising = compare(settings(systems=["vllm-v1", str(path)])).systems

    assert shipped.status == "feasible"
    assert raising.status == "refused"
    assert raising.reason.endswith(f"ValueError('boo'); try check-scheduler {path}")


def test_no_figure_is_cut_on_a_narrow_terminal():
    out = Console(file=StringIO(), width=60)

    page = comparison_page(compare(settings(systems="vllm-v1", replicas=1)))
    print_page(page, out)

    lines = out.file.getvalue().splitlines()
    rows = [line for line in lines if line.startswith(" vllm-v1 ")]
    assert "…" not in "".join(rows)
    assert "too narrow for" in out.file.getvalue()  # the columns that left are named
    assert all(text in "".join(rows) for text in ("%", "ms"))  # in time and p99 stay


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--max-model-len", "0"], "max_model_len is 0"),
        (["--systems", "sarati"], "did you mean sarathi?"),
        (["--systems", ","], "systems: is empty; expected systems, or leave it out"),
        (["--systems", "aladdin:theta=1"], "aladdin takes no settings"),
        (["--systems", "orca:max_length=9"], "not a setting of orca; did you mean"),
        (["--replicas", "0"], "replicas is 0"),
        (["--rates", "-3"], "rates"),
        (["--scheduler", "orca"], "No such option: --scheduler"),
    ],
)
def test_wrong_input_is_one_line(flags, message, capsys):
    given = {k: v for k, v in ASKED.items() if k != "price"}
    words = [w for k, v in given.items() for w in (f"--{k.replace('_', '-')}", str(v))]

    code = exit_code(["compare", *words, *flags])

    error = capsys.readouterr().err
    assert code == 2
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.slow
def test_files_hold_the_figures_and_are_the_same_twice(tmp_path, capsys):
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(json.dumps({**ASKED, "rate": 20}), encoding="utf-8")
    words = [str(scenario), "--systems", "vllm-v1,sa,aladdin", "--rates", "20"]

    codes = [
        exit_code(["compare", *words, "--out", str(tmp_path / name)])
        for name in ("first", "second")
    ]

    names = ("compare.json", "compare.csv", "rates.csv", "report.html")
    texts = [(tmp_path / "first" / name).read_text(encoding="utf-8") for name in names]
    again = [(tmp_path / "second" / name).read_text(encoding="utf-8") for name in names]
    document = json.loads(texts[0])
    rows = list(csv.DictReader(texts[1].splitlines()))
    assert codes == [0, 0]
    assert texts == again
    assert [row["name"] for row in document["systems"]] == ["vllm-v1", "sa", "aladdin"]
    for row, system in zip(rows, document["systems"], strict=True):
        for name in ("gpu_count", "usd_per_month", "goodput_per_s", "e2e_p99_s"):
            assert float(row[name]) == pytest.approx(system[name], rel=1e-5)
    assert document["systems"][1]["prediction_error_median"] > 0
    assert texts[3].count("<svg") == 3
    assert "vllm-v1" in capsys.readouterr().out


def test_the_page_names_the_system_that_needs_least_and_marks_its_row(found):
    costs = {
        row.name: (row.candidate.cost.usd_per_h, row.candidate.gpu_count)
        for row in found.systems
        if not row.refused_share
    }
    first = {name for name, price in costs.items() if price == min(costs.values())}

    page = comparison_page(found)

    named, _, _ = page.headline.partition(" need")
    assert set(named.replace(" and ", ", ").split(", ")) == first
    table = next(part.tables[0] for part in page.sections if part.tables)
    assert {row.name for row in table.rows if table.style(row) == "best"} == first


def test_a_system_that_refuses_requests_wins_against_none_that_refuses_none(found):
    first, *others = found.systems
    refusing = replace(first, refused_share=0.1)

    assert refusing not in winners(replace(found, systems=(refusing, *others)))
    assert winners(replace(found, systems=(refusing,))) == [refusing]
