"""What a change of scenarios does to their bill, as a comment of a pull request."""

import re
from collections.abc import Iterator, Sequence
from html import escape
from math import inf

from capplan.report.columns import format_list, plural, sign
from capplan.report.first_screen import dollars
from capplan.report.received.plan_diff import plan_diff
from capplan.report.received.scenario_change import Changes, ScenarioChange, WrittenPlan
from capplan.report.render.markdown import plain

MARK = "<!-- capplan -->"
"""First line, by which the comment is found."""
_MOST_CAUSES = 4
_LEFT_OUT = "\n\nThe rest is in comment.md, of the job's files.\n"
_PLAN = "The plan, its command and what it rests on"


def title(changes: Changes) -> str:
    """Return what the bill moves by; of one scenario alone its answer."""
    bill, only = changes.bill, changes.only
    if not changes.is_compared and only is not None and only.new is not None:
        return only.new.explained.headline
    if bill.moved is None:
        return "What the change costs cannot be told"
    if not changes.is_compared:
        count = plural(len(changes.each), "scenario")
        return f"{count} for {dollars(bill.new)} a month"
    if not round(bill.moved):
        another = any(change.has_changed for change in changes.each)
        return f"{'Same cost' if another else 'No change'}: {dollars(bill.new)} a month"
    percent = f" ({100 * bill.share:+,.3g} %)".replace("-", "−") if bill.share else ""
    both = f"{dollars(bill.old)} → {dollars(bill.new)}"
    return f"{_moved(bill.moved)} a month: {both}{percent}"


def changed_text(changes: Changes, failures: Sequence[str], most: float = inf) -> str:
    """Return the comment; of what is longer than ``most`` characters its beginning."""
    only = changes.only
    fails = f"**Check fails: {plain('; '.join(failures))}.**" if failures else ""
    head = [MARK, f"### {plain(title(changes))}"]
    if only is not None:
        head += [f"{_answer(only)} {fails}".strip(), *_body(only)]
        brief = only.new.brief.partition("\n")[2] if only.new else ""
        deeper = re.sub(r"^#+", "####", brief, flags=re.MULTILINE).strip()
        folded = [_folded(_PLAN, deeper)] if brief else []
    else:
        head += [fails, "", *_all(changes)]
        folded = [
            _folded(each.scenario, "\n".join([_answer(each), *_body(each)]))
            for each in changes.each
            if each.has_changed
        ]
    whole = ""
    for text in (*(f"{line}\n" for line in head), *folded):
        text = re.sub(r"(?<![\w`])@(?=\w)", "@\u200b", text)  # notifies nobody
        if len(whole) + len(text) + len(_LEFT_OUT) > most:
            return whole + _LEFT_OUT
        whole += text
    return whole


def _folded(summary: str, text: str) -> str:
    return f"\n<details><summary>{escape(summary)}</summary>\n\n{text}\n\n</details>\n"


def _moved(usd: float | None) -> str:
    return "" if usd is None else f"{sign(usd)}{dollars(abs(usd))}"


def _answer(change: ScenarioChange) -> str:
    """Return what to buy in place of what, and whether it holds."""
    plan, old = change.new, change.old.gpus if change.old else {}
    if plan is None:
        return f"{plain(change.scenario)} is removed."
    if not plan.gpus:
        return f"**{plain(plan.explained.headline)}**"
    bought = plain(re.split(r" for |; |\.$", plan.explained.headline)[0])
    is_same_type = len(old) == 1 and old.keys() == plan.gpus.keys()
    counts = [f"{n:,g}{'' if is_same_type else f' {gpu}'}" for gpu, n in old.items()]
    instead = f" instead of {plain(format_list(counts))}" * (old not in ({}, plan.gpus))
    return f"**{bought}**{instead}. The {plain(' '.join(plan.held))}."


def _body(change: ScenarioChange) -> Iterator[str]:
    """Yield the figures, why they moved, and what would be cheaper."""
    head = (change.scenario, "before", "after", "change")
    yield from ("", *_table(head, ("---", *["--:"] * 3), *change.rows), "")
    if change.why_no_old:
        yield f"Before, it could not be planned: {plain(change.why_no_old)}"
    if change.old and change.new and change.has_changed:
        diff = plan_diff(change.old.figures, change.new.figures)
        if diff.effects is not None:
            causes = [
                f"`{' '.join(cause.what.replace('`', '').split())}` "
                f"{plain(f'{cause.old} → {cause.new}')}"
                for cause in diff.causes
            ]
            if more := len(causes[_MOST_CAUSES:]):
                causes[_MOST_CAUSES:] = [f"{more:,} more"]
            price = diff.effects.price_cents
            amount = _moved((diff.effects.total_cents - price) / 100)
            why = f"Why: {', '.join(causes)}: {amount}. " if causes else ""
            yield f"{why}Prices: {_moved(price / 100)}."
    if change.new and (cheaper := list(_cheaper(change.new))):
        yield f"Cheaper: {'. '.join(cheaper)}."


def _cheaper(plan: WrittenPlan) -> Iterator[str]:
    """Yield other ways that cost less, and what they miss."""
    for table in plan.explained.instead:
        headings = [column.heading for column in table.columns]
        for cells in table.rows:
            row = dict(zip(headings, cells, strict=True))
            if row.get("change", "").startswith("−"):
                star = "*" * row.get("a month", "").endswith("*")
                _, misses, what = row.get("peak", "").partition("misses: ")
                yield plain(f"{what if misses else cells[0]}: {row['change']}{star}")


def _table(*rows: Sequence[str]) -> list[str]:
    return [f"| {' | '.join(map(plain, cells))} |" for cells in rows]


def _all(changes: Changes) -> list[str]:
    """Return a row for each scenario: its bill, and whether its peak holds."""
    lines = [("scenario", "before", "after", "change", "peak", "sure")]
    lines.append(("---", "--:", "--:", "--:", "---", "---"))
    for change in changes.each:
        plan, (old, new) = change.new, change.bill
        before = (dollars(old) or "?") if change.old or change.why_no_old else ""
        told = (plan.held[1], plan.sure) if plan else ("removed", "")
        after = (dollars(new) or "?") if plan else ""
        lines.append((change.scenario, before, after, _moved(change.bill.moved), *told))
    return _table(*lines)
