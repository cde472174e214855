"""The page of a plan: the answer, why it is that, its cost, and what it rests on."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from capplan.bounds.certificate import PLAN_SCHEMA, seal
from capplan.planning.configure.launch import Launch
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.classes import own_targets
from capplan.planning.evaluate.run import Run
from capplan.planning.money.cost import (
    Cost,
)
from capplan.planning.plan.purchase import Purchase
from capplan.planning.plan.result import Plan
from capplan.report import drafts, sentences, uncertain, window_sentences
from capplan.report.charts.plan import figures
from capplan.report.columns import (
    format_count,
    format_fine_usd,
    format_share,
)
from capplan.report.money import in_its_currency
from capplan.report.page import FILES, Fact, Page, Section, Table, Tile, about
from capplan.report.pages import purchase
from capplan.report.pages.assumptions import assumption_sections
from capplan.report.pages.candidates import COLUMNS, candidate_values, plan_columns
from capplan.report.pages.classes import classes_section, classes_table
from capplan.report.pages.cost import amount, cost_lines, cost_section, ends
from capplan.report.pages.disaggregated import one_fewer, pool_sections, verdict
from capplan.report.pages.mix import mix_sections, mix_sentence
from capplan.report.pages.probes import probes_section
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
from capplan.report.render.json_text import plain

WHY = "Why this many GPUs"
"""Heading of a section."""

_IN_TILES = ("month", "year", "million input tokens", "million output tokens")
_SPELT_OUT = (
    "TTFT is the time from arrival to the first token, TPOT the mean time per token "
    "after it, and e2e that from arrival to the last token."
)
_LAST = (
    *("placement", "settings", "certificate", "gpu_count_without_prefix_caching"),
    *("windows", "peak", "window_widths", "without_window"),
    *("trace_sha256", "profiles_sha256", "asked_by", "interrupted", "disaggregation"),
    *("risk", "mix", "n_plus_k", "replica_load", "beyond_peak", "last_replica"),
    *("traffic", "lengths", "throughput", "purchase", "api"),
    *("drafts_worth", "drafts_tried"),
)
"""Keys of plan.json in the order in which it has them, behind the others."""
_COARSE = "its count is found to 10 %: it is no rival to the best"


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
    return Page(
        "plan",
        plan.status.capitalize() if run is None else str(run.deployment),
        about(plan.llm, None if best is None else best.gpu),
        lead=_lead(plan),
        tiles=() if best is None or run is None else _tiles(plan, best, run),
        warnings=plan.warnings,
        is_failure=best is None,
        sections=[
            *(() if best is None or run is None else _of_best(plan, best, run)),
            *parts(plan, SECTIONS),
            *pool_sections(plan),
            _candidates(plan),
            *(() if best is None else (served_section(plan),)),
            *parts(plan, {"lengths": lengths_section}),
            Section(
                "Latency, replicas and the fleet over time",
                figures=partial(figures, plan),
            ),
            *(() if best is None else (probes_section(best),)),
            Section(
                "Engine settings",
                facts=() if run is None else sentences.engine_facts(run),
                only=FILES,
            ),
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
            name: row and candidate_values(row, brief=True)
            for name, row in (
                ("best", plan.best),
                ("best_by_gpus", plan.best_by_gpus),
                ("best_estimated", plan.best_estimated),
                ("best_aggregated", plan.best_aggregated),
                ("best_disaggregated", plan.best_disaggregated),
            )
        },
        "infeasible_reason": plan.infeasible_reason,
        "candidates": [candidate_values(row) for row in plan.candidates],
    }
    first = [k for k in vars(plan) if k not in {*values, *_LAST, "runtime_s"}]
    rest = {name: getattr(plan, name) for name in (*first, *_LAST)}
    lines = cost_lines(plan.best)
    bill = [{**plain(line), "amount_usd": line.amount_usd} for line in lines]
    if plan.risk is not None:  # its draws stand in risk.csv
        rest["risk"] = {k: v for k, v in vars(plan.risk).items() if k != "rows"}
    document: dict[str, Any] = plain({**values, **rest, "costs": bill})
    return document if plan.certificate is None else seal(document)


def launch_section(launch: Launch | None, role: str = "") -> Section:
    """Return the command that starts a replica, and what to know before."""
    if launch is None:
        return Section()
    return Section(
        f"Start each {role + ' ' if role else ''}replica with",
        command=launch.line,
        notes=[f"{note}." for note in launch.notes],
    )


def _lead(plan: Plan) -> str:
    """Return what the best candidate does, or why there is none."""
    mean = f"{format_count(plan.rate_per_s)} requests/s"
    lengths = sentences.lengths(plan.mean_prompt_tokens, plan.mean_output_tokens)
    traffic = f"{mean}{window_sentences.at_peak(plan.peak)}, {lengths}"
    if plan.asked_by is not None:
        known = plan.best is not None  # at which rate they ask
        traffic = f"{plan.asked_by}: {traffic}" if known else plan.asked_by
    best = plan.best
    if best is None or best.gpu_count is None:
        mixed = f" {said}" if (said := said_of(plan.mix, mix_sentence)) else ""
        return (
            f"No configuration is known to serve {traffic}, within {plan.slo_text}; "
            f"asked {plan.attainment_text}.{mixed}"
        )
    price = ""
    if best.cost is not None:
        price = f", at {sentences.month(best)},"
    serve = "serves" if best.gpu_count == 1 else "serve"
    gpus = sentences.plural(best.gpu_count, f"{best.gpu} GPU")
    kept = window_sentences.held(plan), sentences.sustained(plan)
    doubt = uncertain.doubts(best) if best.is_to_be_tested else ""
    doubt = f"{doubt[:1].upper()}{doubt[1:]}." if doubt else ""
    texts = doubt, *kept, verdict(plan), said_of(plan.mix, mix_sentence)
    more = "".join(f" {text}" for text in texts if text)
    return f"{gpus}{price} {serve} {traffic}, within {plan.slo_text}.{more}"


def _tiles(plan: Plan, best: Candidate, run: Run) -> list[Tile]:
    judgement = run.judgement
    if own_targets(judgement.classes):
        few = len(judgement.classes) < 4
        asked = plan.attainment_text if few else "each its own share"
        attained = Tile(
            "Attained by", sentences.classes_attained(judgement), f"asked {asked}"
        )
    else:
        assert judgement.attainment is not None
        attained = Tile(
            "Attained by",
            format_share(judgement.attainment.share),
            f"of requests; asked {plan.attainment_text}",
        )
    attained = window_sentences.with_peak(plan.peak, attained)
    bound = best.lower_bound_gpu_count
    counts = best.gpu_count_range if best.pools else best.replica_count_range
    return [
        attained,
        Tile(
            "Replicas",
            f"{best.replica_count:,}",
            f"cautious: {best.cautious_replica_count:,}"
            if best.cautious is not None and counts is None
            else _needed(counts, bool(best.pools)),
        ),
        *(
            Tile(f"Cost {line.what}", amount(line), ends(best, line))
            for line in cost_lines(plan.best)
            if line.what.removeprefix("per ") in _IN_TILES
        ),
        Tile(
            "Lower bound",
            "–" if bound is None else sentences.plural(bound, "GPU"),
            sentences.gap(best),
        ),
    ]


def _needed(counts: tuple[int, int] | None, in_gpus: bool) -> str:
    if counts is None or counts[0] == counts[1]:
        return ""
    low, high = counts
    of = " GPUs" if in_gpus else ""
    return f"{low:,} to {high:,}{of} for 80 % of real engines"


def _of_best(plan: Plan, best: Candidate, run: Run) -> list[Section]:
    """Return why the best candidate is as large, its classes, command and cost."""
    fewest, estimate = plan.best_by_gpus, plan.best_estimated
    bought = plan.purchase or Purchase()
    facts = [
        ("LLM", served_llm(plan)),
        ("nodes", sentences.nodes(run)),
        ("provider", purchase.billed(bought)),
        ("paid and idle", purchase.paid_anyway(bought, best.replica_count or 0)),
        *(("at one provider", text) for text in bought.turned),
        ("engine", sentences.versions(best)),
        ("older engine", _older(plan, best)),
        ("drafts", said_of(plan.drafts_worth, drafts.worth)),
        ("drafts tried", drafts.tried(plan.drafts_tried)),
        *((("uncertain", uncertain.doubts(best)),) if not best.is_to_be_tested else ()),
        ("attained by", sentences.attained(run.judgement, plan.attainment_text)),
        *window_sentences.windows(run.judgement, best.probes),
        ("load", sentences.load(run.judgement)),
        *served_facts(plan),
        ("GPU time", sentences.gpu_time(run)),
        ("API or own", said_of(plan.api, sentences.api_or_own)),
        ("one fewer", one_fewer(best) if best.pools else sentences.proof(best)),
        ("real engines", uncertain.engines(best)),
        ("binds", best.binding or ""),
        ("prefix cache", sentences.caching(plan)),
        ("lower bound", sentences.lower_bound(best)),
        ("bound by", "" if best.bound is None else best.bound.note),
        *((f"{pool.role} bound by", pool.bound.note) for pool in best.pools),
        *plan.said,
    ]
    if fewest is not None and fewest.gpu_count != best.gpu_count:
        facts.append(("fewest GPUs", _priced(fewest)))
    if estimate is not None and estimate is not best:
        doubts = uncertain.doubts(estimate) + uncertain.saving(plan, estimate)
        facts.append(("uncertain", f"{_priced(estimate)}: {doubts}"))
    return [
        Section(notes=[_SPELT_OUT], only=FILES),
        # First for who pays, then for who runs it.
        purchase.bill_section(bought),
        Section(WHY, facts=facts),
        purchase.replicas_section(bought),
        cost_section(best, run),
        classes_section(run.judgement.classes, run.work),
        _load_test(plan, best),
        launch_section(best.launch),
        *(launch_section(pool.launch, pool.role) for pool in best.pools),
    ]


def _older(plan: Plan, best: Candidate) -> str:
    """Return what an older engine sustains, where nobody said which is planned."""
    asked = plan.settings.get("engine"), plan.settings.get("engine_overhead")
    return "" if any(asked) else uncertain.another_engine(best)


def _load_test(plan: Plan, best: Candidate) -> Section:
    """Return the command that settles a count whose latency is in doubt."""
    command = uncertain.settled_by(plan, best) if best.is_to_be_tested else ""
    if not command:
        return Section()
    return Section(
        "After a load test, plan with what it measured (--profiles mine.yaml)",
        command=command,
    )


def _priced(candidate: Candidate) -> str:
    assert candidate.run is not None
    cost: Cost | None = candidate.cost
    price = "" if cost is None else f", {format_fine_usd(cost.usd_per_h)} per hour"
    pools = str(candidate.run.deployment)
    return f"{pools} of {candidate.gpu}{price}{_beside(candidate)}"


def _beside(candidate: Candidate) -> str:
    """Return the cautious count; empty where no doubt is."""
    cautious = uncertain.cautious(candidate)
    return f" (cautious: {cautious})" if cautious else ""


def _candidates(plan: Plan) -> Section:
    best = plan.best

    def style(row: Candidate) -> str:
        return "best" if row is best else "" if row.status == "feasible" else "fail"

    remarks: list[Fact] = [
        (str(row), f"uncertain: {uncertain.doubts(row)}{_beside(row)}")
        for row in plan.candidates
        if row.run is not None and row.is_in_doubt
    ]
    for row in plan.candidates:
        why = row.pruned_reason or row.infeasible_reason or (_COARSE * row.coarse)
        if why:
            remarks.append((str(row), f"{row.status}: {why}"))
    note = (
        "Best first. “at least” is a lower bound: with fewer GPUs of that candidate, "
        "no scheduler meets the SLO under the same latency model."
    )
    table = Table(COLUMNS, plan.candidates, style=style)
    return Section("Candidates", tables=[table], facts=remarks, notes=[note])
