"""The first screen of autoscalers: which to run, its bill, and whether it holds."""

from collections.abc import Iterator

from capplan.deployment.configuration import Configuration
from capplan.planning.autoscale.result import Autoscaled, PolicyResult
from capplan.planning.autoscale.settings import PERFECT
from capplan.report import uncertain
from capplan.report.columns import format_count, format_share, plural
from capplan.report.first_screen import Way, dollars, no_answer, ways
from capplan.report.page import Answer, Said, about
from capplan.report.render.terminal import MOST_ROWS
from capplan.report.window_sentences import window_length
from capplan.units import format_duration

_WIDEST = 70
"""Letters of the limits that it spells out."""


def autoscale_title(result: Autoscaled) -> str:
    """Return what to run and its bill in a line, of a fixed form."""
    fixed, best = result.fixed, result.best
    if fixed is None or best is None:
        return f"No number of fixed replicas holds {_limits(result)}."
    size, paid = plural(fixed.outcome.replica_count, "fixed replica"), _bill(best)
    if best is fixed:
        less = "; no policy here holds for less" if result.policies else ""
        return f"Keep {size}: {_paid(result, paid)}{less}."
    saved = _paid(result, _bill(fixed) - paid).partition(" ")[0].rstrip("*")
    return f"Scale by {best.name}: {_paid(result, paid)}, {saved} less than {size}."


def autoscale_subject(result: Autoscaled) -> str:
    """Return whose replicas they are, what arrives and what is promised."""
    configuration, since_s = _configuration(result), result.arrivals_since_s
    gpus = configuration.gpus
    replica = f", {gpus} GPUs a replica" if gpus > 1 else ""
    return (
        f"{about(result.settings.llm, configuration.gpu)}{replica} · "
        f"{len(since_s):,} requests in {format_duration(float(since_s[-1]))} · "
        f"{_limits(result)} for {_asked(result)}"
    )


def autoscale_lead(result: Autoscaled) -> str:
    """Return what the best fleet does, and what the best of the other kind costs."""
    fixed, best, policy = result.fixed, result.best, result.best_policy
    if fixed is None or best is None:
        return f"No fixed fleet holds {_limits(result)}: {result.reason}."
    share = format_share(best.outcome.slo_attainment)
    text = f"{share} of requests are answered in time; asked {_asked(result)}."
    if best is not fixed and best.fixed is not None and best.of_static is not None:
        size = plural(best.fixed.replica_count, "fixed replica")
        return f"{text} {size} do as well: this costs {format_share(best.of_static)}."
    if policy is None or not policy.meets:
        return f"{text} No policy here holds."
    paid = _paid(result, _bill(policy))
    return f"{text} The cheapest policy that holds, {policy.name}, costs {paid}."


def autoscale_answer(result: Autoscaled) -> Answer:
    """Return the first screen of autoscalers beside fixed fleets."""
    fixed, best = result.fixed, result.best
    if fixed is None or best is None:
        misses = Said("misses", result.reason)
        relax = Said("relax what is missed, or take other GPUs", "--slo, --gpu, --tp")
        return no_answer(misses, relax)
    rows = [row for row in (fixed, *result.policies) if row.name != PERFECT]
    rows.sort(key=lambda row: (row is not best, not row.meets, _rank(row)))
    named = {} if _is_priced(result) else {"gpus": "GPU-hours", "usd": ""}
    table = ways(
        [_way(result, row) for row in rows[:MOST_ROWS]],
        "policy",
        **{"gpus": "replicas", **named},
    )
    said = (_buy(result, best), _cost(result, best), _peak(result, best), _sure(result))
    return Answer(*said, next(autoscale_steps(result)), table, _notes(result, best))


def autoscale_steps(result: Autoscaled) -> Iterator[Said]:
    """Yield what to do now, the most valuable first."""
    configuration, best = _configuration(result), result.best
    if best is None:
        return
    pays = _pays_up_to(result)
    if result.settings.cold_start is None and (pays or best is not result.fixed):
        yield Said(f"time one cold start{pays}", "--cold-start TIME")
    for loss in result.losses:
        if loss.fleet == best.name and loss.spares:
            spares = plural(loss.spares, "spare replica")
            yield Said(f"add {spares}: then it holds with {loss.what}")
    if not _is_priced(result) and configuration.gpu:
        yield Said("give the price", f"--price {configuration.gpu}=USD")
    if configuration.is_estimated:
        yield Said("load-test one replica before you buy", "capplan fit --from FILE")
    yield Said("keep what you run" if best is result.fixed else f"run {best.policy}")


def _pays_up_to(result: Autoscaled) -> str:
    """Return the longest cold start with which a policy costs less than fixed ones.

    Of fleets that attain as much; empty where none does, or that was not asked for.
    """
    rows = [row for row in result.policies if row.break_even_s and row.name != PERFECT]
    ends = [((row.break_even_s or (None,))[0] or 0.0, row.name) for row in rows]
    longest_s, name = max(ends, default=(0.0, ""))
    return f": {name} may pay below {format_duration(longest_s)}" if longest_s else ""


def _configuration(result: Autoscaled) -> Configuration:
    return result.deployment.pool.configuration


def _limits(result: Autoscaled) -> str:
    text, classes = result.slo.describe(result.class_names), len(result.class_names)
    return text if len(text) <= _WIDEST else f"the limits of {classes} classes"


def _asked(result: Autoscaled) -> str:
    """Return the share asked, and in which windows."""
    asked = result.slo.describe_targets(result.class_names)
    judged_s = None if result.fixed is None else result.fixed.outcome.judged_s
    return asked + (f" of every {window_length(judged_s)}" if judged_s else "")


def _is_priced(result: Autoscaled) -> bool:
    return result.fixed is not None and result.fixed.outcome.usd_per_month is not None


def _is_assumed(result: Autoscaled) -> bool:
    price = _configuration(result).price
    return price is not None and (price.is_guess or price.is_stale)


def _bill(row: PolicyResult) -> float:
    """Return dollars of a month, and without a price GPU-hours."""
    usd = row.outcome.usd_per_month
    return row.outcome.gpu_hours_paid if usd is None else usd


def _rank(row: PolicyResult) -> float:
    """Order fleets that hold by their bill, and those that miss by how little."""
    return _bill(row) if row.meets else -row.outcome.slo_attainment


def _paid(result: Autoscaled, bill: float) -> str:
    if not _is_priced(result):
        return f"{format_count(bill)} GPU-hours"
    return f"{dollars(bill, _is_assumed(result))} a month"


def _buy(result: Autoscaled, best: PolicyResult) -> Said:
    hours, paid = best.outcome.hours, format_count(best.outcome.gpu_hours_paid)
    text = plural(hours.peak_replicas, "replica")
    if best is result.fixed or result.fixed is None:
        return Said(f"{text} at all hours", f"{paid} GPU-hours")
    fixed = format_count(result.fixed.outcome.gpu_hours_paid)
    mean = format_count(hours.mean_replicas)
    return Said(f"up to {text}, {mean} on average", f"{paid} GPU-hours, fixed {fixed}")


def _cost(result: Autoscaled, best: PolicyResult) -> Said:
    if not _is_priced(result):
        gpu = _configuration(result).gpu
        return Said("unknown", f"--price {gpu}=USD" if gpu else "")
    perfect = [_bill(row) for row in result.policies if row.name == PERFECT]
    less = [usd for usd in perfect if usd < _bill(best) - 0.5]
    more = [f"with perfect foresight {_paid(result, usd)}" for usd in less]
    return Said(_paid(result, _bill(best)), *more)


def _attained(row: PolicyResult) -> str:
    hour = row.outcome.worst_hour_attainment
    text = f"{format_share(row.outcome.slo_attainment)} in time"
    return text + ("" if hour is None else f", worst hour {format_share(hour)}")


def _peak(result: Autoscaled, best: PolicyResult) -> Said:
    text, fixed = _attained(best), result.fixed
    if fixed is not None and best is not fixed:
        text += f"; fixed: {_attained(fixed)}"
    return Said("holds", text)


def _sure(result: Autoscaled) -> Said:
    found = []
    if result.settings.cold_start is None:
        found.append(f"a cold start of {format_duration(result.cold_start_s)}* assumed")
    return uncertain.known(_configuration(result), found)


def _way(result: Autoscaled, row: PolicyResult) -> Way:
    hours, hour = row.outcome.hours, row.outcome.worst_hour_attainment
    gpus = f"{format_count(hours.mean_replicas)} ({hours.peak_replicas:,})"
    if not _is_priced(result):
        gpus = format_count(row.outcome.gpu_hours_paid)
    told = f"{format_share(row.outcome.slo_attainment)} in time"
    if hour is not None:
        told = f"worst hour {format_share(hour)}"
    return Way(
        row.name,
        gpus,
        row.outcome.usd_per_month,
        f"{'holds,' if row.meets else 'misses:'} {told}",
        is_chosen=row is result.best,
        is_assumed=_is_assumed(result),
    )


def _notes(result: Autoscaled, best: PolicyResult) -> list[str]:
    """Return what becomes of the chosen fleet as replicas go."""
    notes = ["interrupted: not all was simulated"] if result.interrupted else []
    for loss in result.losses:
        if loss.fleet == best.name:
            gone = loss.gone_attainment
            share = format_share(loss.slo_attainment if gone is None else gone)
            state = "holds" if loss.meets else "misses"
            more = f"; {plural(loss.spares, 'spare')} would hold" if loss.spares else ""
            notes.append(f"with {loss.what} it {state}, {share} in time then{more}")
    return notes
