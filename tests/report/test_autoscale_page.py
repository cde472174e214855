"""The page, the table and the JSON of autoscalers say the same."""

import csv
import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from capplan.cli.main import exit_code
from capplan.planning.autoscale.autoscale import autoscale
from capplan.planning.autoscale.settings import AutoscaleSettings
from capplan.report.autoscale_why import autoscale_why
from capplan.report.charts.autoscale import figures, finding
from capplan.report.pages.autoscale import autoscale_page, autoscale_values
from capplan.report.render.html_page import html
from capplan.report.render.json_text import json_text
from capplan.report.render.terminal import print_page
from capplan.workload.slo import parse_slo
from tests.report.answered import screen

REQUIRED = {
    "name",
    "slo_attainment",
    "worst_hour_attainment",
    "mean_replicas",
    "peak_replicas",
    "gpu_hours_paid",
    "gpu_hours_ready",
    "gpu_hours_busy",
    "actions_per_day",
    "static_replicas",
    "lower_bound_gpu_hours",
    "break_even_cold_start_s",
}


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """Twenty minutes with five busy ones in the middle."""
    gaps_s = [0.5] * 1000 + [0.08] * 4000 + [0.5] * 1000
    at_s, rows = 0.0, []
    for k, gap_s in enumerate(gaps_s):
        at_s += gap_s
        rows.append(f"{at_s:.2f},{200 + k % 90},{40 + k % 31}")
    path = tmp_path_factory.mktemp("burst") / "burst.csv"
    head = "arrival_s,prompt_tokens,output_tokens"
    path.write_text("\n".join([head, *rows]) + "\n")
    return path


FLEET = {
    "latency_ms": "20,0.2,0,1,0.0001",
    "kv_blocks": 4000,
    "slo": "ttft=2s,tpot=60ms",
    "attainment": 0.9,
    "cold_start": "2s",
    "policies": "hpa,keda",
    "outage": "1@peak:20s",
}


@pytest.fixture(scope="module")
def found(trace):
    return autoscale(AutoscaleSettings(trace=trace, **FLEET))


def test_the_json_has_the_keys_that_it_is_read_by(found):
    values = autoscale_values(found)

    assert values["schema"] == "capplan.autoscale/1"
    assert [row["name"] for row in values["policies"]] == ["hpa", "keda", "perfect"]
    for row in (values["fixed"], *values["policies"]):
        assert set(row) >= REQUIRED
        assert row["lower_bound_gpu_hours"] == values["lower_bound_gpu_hours"]
    assert values["losses"][0]["what"] == "outage 1@peak:20s"
    assert values["fixed"]["static_replicas"] == values["fixed"]["peak_replicas"]


def test_an_autoscaler_follows_a_burst_for_fewer_gpu_hours(found):
    best = found.best

    assert best is found.best_policy
    assert best.meets
    assert best.pays
    assert best.outcome.gpu_hours_paid < found.fixed.outcome.gpu_hours_paid
    assert best.name in autoscale_page(found).headline


def priced(found, usd_per_h=2.0, **more):
    """Return the same fleets with a price of their GPU-hours in a month of them."""

    def paid(row):
        month = row.outcome.hours.mean_replicas * 730 * usd_per_h
        return replace(row, outcome=replace(row.outcome, usd_per_month=month))

    fixed, policies = paid(found.fixed), tuple(map(paid, found.policies))
    return replace(found, fixed=fixed, policies=policies, **more)


def asked(found, **settings):
    return replace(found, settings=found.settings.model_copy(update=settings))


def missed(found):
    """Return the same fleets, of which only the fixed one holds."""
    rows = [replace(row.outcome, meets=False) for row in found.policies]
    rows = [replace(row, worst_hour_attainment=0.8125) for row in rows]
    pairs = zip(found.policies, rows, strict=True)
    policies = tuple(replace(row, outcome=outcome) for row, outcome in pairs)
    return replace(found, policies=policies)


def many(found):
    names = ("schedule", "wva-v2", "dynamo", "ray", "aladdin", "llumnix")
    rows = tuple(replace(found.policies[0], name=name) for name in names)
    return replace(found, policies=(*found.policies, *rows))


REASON = (
    "TPOT takes 21 ms at least, not 5 ms; with each request alone on a replica none"
)
SCREENS = {
    "GPU-hours": lambda of: of,
    "priced": priced,
    "euros": lambda of: asked(priced(of), currency="EUR", exchange_rate=1.1),
    "cold start assumed": lambda of: asked(priced(of), cold_start=None),
    "none holds": lambda of: missed(priced(of)),
    "none holds, no price": missed,
    "many": lambda of: many(priced(of)),
    "interrupted": lambda of: replace(priced(of), interrupted=True, policies=()),
    "no answer": lambda of: replace(of, fixed=None, policies=(), reason=REASON),
    "classes": lambda of: replace(
        priced(of),
        slo=parse_slo([f"{name}:ttft={k}s" for k, name in enumerate("abcdef", 1)]),
        class_names=tuple("abcdef"),
    ),
    "no losses": lambda of: replace(priced(of, 40.0), losses=()),
}


@pytest.mark.parametrize("name", SCREENS)
def test_autoscalers_are_one_screen_with_the_figures_of_their_json(found, name):
    result = SCREENS[name](found)

    page = autoscale_page(result)

    for width in (80, 100):
        lines = screen(page, width).splitlines()
        assert len(lines) <= 24
        assert all(len(line) <= width for line in lines)
    if result.fixed is None:
        assert (
            page.headline
            == "No number of fixed replicas holds ttft ≤ 2 s, tpot ≤ 60 ms."
        )
        return
    assert page.headline.startswith(("Scale by ", "Keep 2 fixed replicas: "))
    values = json.loads(json_text(page.values()))
    kept = [values["fixed"], *values["policies"]]
    rows = page.answer.instead.rows
    assert 1 <= len(rows) <= 6
    symbol, euro = ("€", 1.1) if name == "euros" else ("$", 1.0)
    of = {row["name"]: row for row in kept}
    for row in rows:
        usd = of[row[0]]["usd_per_month"]
        if usd is None:
            assert row[1] == f"{of[row[0]]['gpu_hours_paid']:.3g}"
        else:
            assert row[2] == f"{symbol}{usd / euro:,.0f}"
        assert row[4].startswith("holds" if of[row[0]]["meets"] else "misses")


def test_a_policy_that_pays_is_the_title_with_what_it_saves(found):
    result = priced(found)
    usd = result.best.outcome.usd_per_month
    saved = result.fixed.outcome.usd_per_month - usd

    page = autoscale_page(result)

    assert page.headline == (
        f"Scale by {result.best.name}: ${usd:,.0f} a month, ${saved:,.0f} less than "
        "2 fixed replicas."
    )
    assert page.answer.instead.rows[0][-1]  # the chosen one stands first


def test_what_the_paid_replicas_do_is_why_a_policy_is_cheapest(found):
    best, hours = found.best, found.best.outcome.hours

    facts = dict(autoscale_why(found))

    assert next(iter(facts)) == f"{best.name}, the cheapest"
    assert facts[f"{best.name}, the cheapest"].startswith(
        f"{hours.mean_replicas:.3g} on average, up to {hours.peak_replicas} replicas: "
    )
    busy = 100 * hours.busy_h / hours.paid_h
    assert f"{busy:.1f}"[:2] in facts[f"{best.name}, the cheapest"]
    assert facts["fixed holds, for no less"].startswith("2 replicas: ")
    assert not any("perfect" in label for label in facts)
    assert "<h2>Why this policy</h2>" in html(autoscale_page(found))


def test_a_policy_that_misses_says_when_and_what_delays_it(found):
    late, few = missed(found), missed(found)
    row = few.policies[0]
    hours = replace(row.outcome.hours, peak_replicas=1, mean_replicas=1.0)
    row = replace(row, outcome=replace(row.outcome, hours=hours))
    few = replace(few, policies=(row,))

    delayed, short = (dict(autoscale_why(of))["hpa misses"] for of in (late, few))

    assert delayed.startswith("81.25 % in time in its worst hour; ")
    assert "each serves 2 s after its order" in delayed
    assert "never the 2 of a fixed fleet" in short
    assert autoscale_why(replace(found, fixed=None, policies=())) == []


def test_a_fixed_fleet_is_kept_where_no_policy_holds_for_less(found):
    page = autoscale_page(missed(priced(found)))

    usd = f"${2 * 730 * 2:,}"
    told = f"Keep 2 fixed replicas: {usd} a month; no policy here holds for less."
    assert page.headline == told
    assert page.lead.endswith("No policy here holds.")
    assert page.answer.instead.rows[1][4] == "misses: worst hour 81.25 %"


def test_an_assumed_cold_start_is_starred_and_the_next_thing_to_time(found):
    given, assumed = (
        autoscale_page(asked(found, cold_start=text)).answer for text in ("2s", None)
    )

    assert given.sure.text == "measured"
    assert assumed.sure.text == "estimated · a cold start of 2 s* assumed"
    assert assumed.next.text.startswith("time one cold start")
    assert assumed.next.text.endswith("--cold-start TIME")
    assert "cold start" not in given.next.text


def test_what_an_outage_does_to_the_chosen_fleet_is_the_note(found):
    kept = missed(found)

    note = autoscale_page(kept).answer.notes[0]

    assert note == (
        "with outage 1@peak:20s it misses, 0 % in time then; 1 spare would hold"
    )
    assert "add 1 spare replica" in autoscale_page(kept).answer.next.text


def test_the_charts_show_replicas_needed_ready_and_paid_and_gpu_hours(found):
    drawn, name = [finding(found), *figures(found)], found.best_policy.name

    assert [label for label, _ in drawn[0].legend] == ["paid", "ready", "needed"]
    assert [figure.title for figure in drawn] == [
        f"{name} runs 1 to 4 replicas; a fixed fleet needs 2",
        "GPU-hours paid",
    ]
    text = html(autoscale_page(found))
    assert text.count("<svg") == 2


def test_a_narrow_terminal_shows_every_column_that_its_note_explains(found):
    text, without = io.StringIO(), io.StringIO()
    unasked = [replace(row, break_even_s=None) for row in found.policies]

    print_page(autoscale_page(found), Console(file=text, width=120))
    plain = autoscale_page(replace(found, policies=unasked))
    print_page(plain, Console(file=without, width=120))

    assert text.getvalue().count("pays up to") == 2  # a heading and the note
    assert "pays up to" not in without.getvalue()


def test_the_files_and_the_terminal_agree(trace, tmp_path, capsys):
    given = [
        f"--{name.replace('_', '-')}={value}"
        for name, value in FLEET.items()
        if name != "outage"
    ]

    code = exit_code(
        ["autoscale", "--trace", str(trace), *given, "--out", str(tmp_path)]
    )

    shown = capsys.readouterr().out
    document = json.loads((tmp_path / "autoscale.json").read_text())
    with (tmp_path / "autoscale.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert code == 0
    assert [row["policy"].partition(":")[0] for row in rows[1:]] == [
        row["name"] for row in document["policies"]
    ]
    for row, told in zip(rows, [document["fixed"], *document["policies"]], strict=True):
        assert float(row["gpu_hours_paid"]) == pytest.approx(told["gpu_hours_paid"])
        assert float(row["slo_attainment"]) == pytest.approx(told["slo_attainment"])
    assert shown.startswith(f"Scale by {document['best']}: ")
    assert "GPU-hours" in shown
    assert not (tmp_path / "losses.csv").exists()


def test_the_title_alone_is_line_1(trace, capsys):
    given = {**FLEET, "policies": "keda"}
    given.pop("outage")
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    asked = ["autoscale", "--trace", str(trace), *flags, "--no-break-even"]

    code = exit_code([*asked, "--format", "title"])

    line = "Scale by keda: 0.705 GPU-hours, 0.0289 less than 2 fixed replicas.\n"
    assert code == 0
    assert capsys.readouterr().out == line


def test_a_target_that_nothing_attains_ends_with_exit_code_3(trace, capsys):
    given = [
        f"--{name.replace('_', '-')}={value}"
        for name, value in {**FLEET, "slo": "ttft=2s,tpot=5ms"}.items()
    ]

    assert exit_code(["autoscale", "--trace", str(trace), *given]) == 3

    told = "No number of fixed replicas holds ttft ≤ 2 s, tpot ≤ 5 ms.\n"
    assert capsys.readouterr().out.startswith(told)
