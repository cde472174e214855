"""The page of a plan: the answer, why it is that, its cost, and what it rests on."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from capplan.bounds.certificate import PLAN_SCHEMA, seal
from capplan.planning.configure.launch import Launch
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.probe import Probe
from capplan.planning.evaluate.run import Run
from capplan.planning.plan.purchase import Purchase
from capplan.planning.plan.result import Plan
from capplan.report import drafts, sentences, uncertain, window_sentences
from capplan.report.charts.day import day_figure
from capplan.report.charts.plan import figures
from capplan.report.charts.sessions import session_figures
from capplan.report.columns import format_count, format_fine_usd, format_share
from capplan.report.fields import fields
from capplan.report.first_screen import prices_told
from capplan.report.money import in_its_currency
from capplan.report.page import (
    FILES,
    Fact,
    Page,
    Section,
    Table,
    next_section,
    why_section,
)
from capplan.report.pages import purchase
from capplan.report.pages.assumptions import assumption_sections
from capplan.report.pages.candidates import COLUMNS, candidate_values, plan_columns
from capplan.report.pages.classes import classes_section, classes_table
from capplan.report.pages.cost import bill_section
from capplan.report.pages.disaggregated import one_fewer, pool_sections, verdict
from capplan.report.pages.mix import mix_sections, mix_sentence
from capplan.report.pages.risk import draws_table, risk_section
from capplan.report.pages.served import (
    lengths_section,
    lengths_table,
    said_of,
    served_facts,
    served_llm,
    served_section,
    throughput_table,
    traffic_table,
)
from capplan.report.pages.spares import spares_section
from capplan.report.panels import plan_panel
from capplan.report.plan_answer import (
    next_steps,
    plan_answer,
    plan_lead,
    plan_subject,
    plan_title,
    plan_warnings,
)
from capplan.report.render.json_text import plain

_SPELT_OUT = (
    "TTFT is the time from arrival to the first token, TPOT the mean time per token "
    "after it, and e2e that from arrival to the last token."
)
_BEST: tuple[str, ...] = ("best", "best_by_gpus", "best_estimated")
_BEST += ("best_aggregated", "best_disaggregated")
_LAST = (
    *("placement", "settings", "certificate", "gpu_count_without_prefix_caching"),
    *("windows", "peak", "window_widths", "without_window"),
    *("trace_sha256", "profiles_sha256", "asked_by", "interrupted", "disaggregation"),
    *("risk", "mix", "n_plus_k", "replica_load", "beyond_peak", "last_replica"),
    "last_points",
    *("traffic", "lengths", "throughput", "purchase", "api"),
    *("drafts_worth", "drafts_tried", "tiers_tried", "sessions", "collapse", "sticky"),
)
"""Keys of plan.json in the order in which it has them, behind the others."""
_AFTER_TEST = "After a load test, whether the plan stands, or what to rent instead"
_COARSE = "works, costs more (replicas ± 10 %)"
_STATUS = {"pruned": "not simulated: ", "feasible": ""}


SECTIONS: dict[str, Callable[[Any], Section | list[Section]]] = {
    "risk": risk_section,
    "n_plus_k": spares_section,
    "mix": mix_sections,
}
"""What the page says of a part of a plan, by the part's name, before candidates."""


def parts(
    plan: Plan, sections: Mapping[str, Callable[[Any], Section | list[Section]]]
) -> Iterator[Section]:
    """Yield the sections of the parts that a plan has."""
    for name, said in sections.items():
        if part := getattr(plan, name):
            found = said(part)
            yield from [found] if isinstance(found, Section) else found


@in_its_currency
def plan_page(plan: Plan) -> Page:
    """Return the page of a plan."""
    best = plan.best
    run = None if best is None else best.run
    engine = () if run is None else sentences.engine_facts(run)
    return Page(
        "plan",
        plan_title(plan),
        plan_subject(plan),
        prices=prices_told(None if best is None else best.price),
        answer=plan_answer(plan),
        lead=plan_lead(plan),
        chart=day_figure(plan),
        panel=plan_panel(plan),
        warnings=plan_warnings(plan),
        is_failure=best is None,
        sections=[
            *(() if best is None or run is None else _of_best(plan, best, run)),
            *parts(plan, SECTIONS),
            *pool_sections(plan),
            _candidates(plan),
            Section() if best is None else served_section(plan),
            *parts(plan, {"lengths": lengths_section}),
            Section(
                "Latency, replicas and the fleet over time",
                figures=partial(figures, plan),
            ),
            Section() if best is None else probes_section(best),
            Section("Engine settings", engine, only=FILES),
            *assumption_sections(plan),
        ],
        values=partial(plan_values, plan),
        csv={
            "plan.csv": Table((*plan_columns(plan), *COLUMNS), plan.candidates),
            "risk.csv": draws_table(plan.risk),
            "classes.csv": classes_table(
                row.run for row in plan.candidates if row.run is not None
            ),
            "lengths.csv": lengths_table(plan.lengths),
            "throughput.csv": throughput_table(plan.throughput),
            "traffic.csv": traffic_table(plan.traffic),
            **purchase.money_tables(plan),
        },
    )


def plan_values(plan: Plan) -> dict[str, Any]:
    """Return the plan as plain values, sealed where it has a certificate.

    Only ``candidates`` holds the distributions and series. The time that the plan took
    is left out, so that the same plan gives the same bytes.
    """
    values: dict[str, Any] = {
        "schema": PLAN_SCHEMA,
        "status": plan.status,
        **{
            name: (row := getattr(plan, name)) and candidate_values(row, brief=True)
            for name in _BEST
        },
        "infeasible_reason": plan.infeasible_reason,
        "candidates": [candidate_values(row) for row in plan.candidates],
    }
    first = [k for k in vars(plan) if k not in {*values, *_LAST, "runtime_s"}]
    rest = {name: getattr(plan, name) for name in (*first, *_LAST)}
    cost = None if plan.best is None else plan.best.cost
    lines = () if cost is None else cost.lines
    bill = [{**plain(line), "amount_usd": line.amount_usd} for line in lines]
    if plan.risk is not None:  # its draws stand in risk.csv
        rest["risk"] = {k: v for k, v in vars(plan.risk).items() if k != "rows"}
    document: dict[str, Any] = plain({**values, **rest, "costs": bill})
    return document if plan.certificate is None else seal(document)


def launch_section(launch: Launch | None, role: str = "") -> Section:
    """Return the command that starts a replica, and what to know before."""
    if launch is None:
        return Section()
    heading = f"Start each {role + ' ' if role else ''}replica with"
    notes = [f"{note}." for note in launch.notes]
    return Section(heading, command=launch.line, notes=notes, topic="run")


def _of_best(plan: Plan, best: Candidate, run: Run) -> list[Section]:
    """Return why the best candidate is as large, its classes, command and cost."""
    bought = plan.purchase or Purchase()
    command = uncertain.settled_by(plan, best) if best.is_to_be_tested else ""
    started = [(best.launch, ""), *((pool.launch, pool.role) for pool in best.pools)]
    return [
        Section(notes=[_SPELT_OUT], only=FILES),
        # First for who pays, then for who runs it.
        purchase.bill_section(bought),
        why_section("many GPUs", _why(plan, best, run)),
        Section("The busiest time", facts=_peak_facts(plan, run, best), topic="peak"),
        Section("Sessions", figures=partial(session_figures, run, plan), topic="peak"),
        Section(
            "Nodes and providers", facts=_paid_facts(plan, best, run), topic="price"
        ),
        Section("How sure it is", facts=_sure_facts(plan, best), topic="sure"),
        next_section(next_steps(plan)),
        purchase.replicas_section(bought),
        bill_section(best.cost, run.deployment.pools),
        replace(classes_section(run.judgement.classes, run.work), topic="peak"),
        Section(_AFTER_TEST, command=command, topic="sure"),
        *(launch_section(launch, role) for launch, role in started),
    ]


def _why(plan: Plan, best: Candidate, run: Run) -> list[Fact]:
    fewest, asked = plan.best_by_gpus, plan.attainment_text
    facts = [
        ("LLM", served_llm(plan)),
        ("in time", sentences.attained(run.judgement, asked, sentences.judged(run))),
        ("one fewer", one_fewer(best) if best.pools else sentences.proof(best)),
        ("binds", sentences.binds(best)),
        ("lower bound", sentences.lower_bound(best)),
        ("bound by", "" if best.bound is None else best.bound.note),
        *((f"{pool.role} bound by", pool.bound.note) for pool in best.pools),
        ("two pools", verdict(plan)),
        ("mix", said_of(plan.mix, mix_sentence)),
        ("prefix cache", sentences.caching(plan)),
        ("drafts", said_of(plan.drafts_worth, drafts.worth)),
        ("drafts tried", drafts.tried(plan.drafts_tried)),
        *plan.said,
    ]
    if fewest is not None and fewest.gpu_count != best.gpu_count:
        facts.append(("fewest GPUs", _priced(fewest)))
    return facts


def _peak_facts(plan: Plan, run: Run, best: Candidate) -> list[Fact]:
    return [
        ("peak", window_sentences.held(plan)),
        *window_sentences.windows(run.judgement, best.probes),
        ("as replayed", sentences.sustained(plan)),
        ("load", sentences.load(run.judgement)),
        *served_facts(plan),
    ]


def _paid_facts(plan: Plan, best: Candidate, run: Run) -> list[Fact]:
    bought = plan.purchase or Purchase()
    return [
        ("provider", purchase.billed(bought)),
        ("paid and idle", purchase.paid_anyway(bought, best.replica_count or 0)),
        *(("at one provider", text) for text in bought.turned),
        ("GPU time", sentences.gpu_time(run)),
        ("API or own", said_of(plan.api, sentences.api_or_own)),
    ]


def _sure_facts(plan: Plan, best: Candidate) -> list[Fact]:
    asked = plan.settings.get("engine"), plan.settings.get("engine_overhead")
    facts = [
        ("engine", sentences.versions(best)),
        ("older engine", "" if any(asked) else uncertain.another_engine(best)),
        ("estimated", uncertain.doubts(best)),
        ("real engines", uncertain.engines(best)),
    ]
    estimate = plan.best_estimated
    if estimate is not None and estimate is not best:
        doubts = uncertain.doubts(estimate) + uncertain.saving(plan, estimate)
        facts.append(("cheaper, unsure", f"{_priced(estimate)}: {doubts}"))
    return facts


def _priced(candidate: Candidate) -> str:
    assert candidate.run is not None
    cost, fleet = candidate.cost, candidate.run.deployment
    price = "" if cost is None else f", {format_fine_usd(cost.usd_per_h)} per hour"
    return f"{fleet} of {candidate.gpu}{price}{_beside(candidate)}"


def _beside(candidate: Candidate) -> str:
    """Return the cautious count; empty where no doubt is."""
    cautious = uncertain.cautious(candidate)
    return f" (cautious: {cautious})" if cautious else ""


def _candidates(plan: Plan) -> Section:
    best = plan.best

    def style(row: Candidate) -> str:
        return "best" if row is best else "" if row.status == "feasible" else "fail"

    known = [row for row in plan.candidates if row.run is not None]
    remarks: list[Fact] = [
        (str(row), f"estimated: {uncertain.doubts(row)}{_beside(row)}")
        for row in known
        if row.is_in_doubt
    ]
    for row in plan.candidates:
        why = row.pruned_reason or row.infeasible_reason or (_COARSE * row.coarse)
        if why:
            remarks.append((str(row), _STATUS.get(row.status, f"{row.status}: ") + why))
    note = (
        "Best first. “at least”: with fewer GPUs of that candidate no scheduler holds "
        "the SLO with the same iteration times."
    )
    table = Table(COLUMNS, known, style=style)  # of others the facts say why not
    return Section(
        "Candidates", tables=[table], facts=remarks, notes=[note], topic="candidates"
    )


def probes_section(best: Candidate) -> Section:
    """Return how each simulated count does."""

    def style(probe: Probe) -> str:
        if probe.replica_count == best.replica_count:
            return "best"
        return "" if probe.meets else "fail"

    columns = fields(
        "probe",
        replica_count=lambda probe: " + ".join(map(format_count, probe.counts)),
        result=_result,
    )
    table = Table(columns, best.probes, style=style)
    return Section("Simulated replica counts", tables=[table], only=FILES)


def _result(probe: Probe) -> str:
    found = {True: "holds", False: "misses", None: "too close to call"}
    worst = "".join(
        f", {format_share(row.slo_attainment)} in the worst window"
        for row in probe.windows
        if row.is_judged
    )
    return f"{found[probe.meets]}{worst}{'' if probe.stable else ', backlog grows'}"
