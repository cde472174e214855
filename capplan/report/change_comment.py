"""What a change of scenarios does to their bill, as a comment of a pull request."""

import re
from collections.abc import Iterator, Sequence
from html import escape
from math import inf

from capplan.report.columns import format_list, plural, sign
from capplan.report.first_screen import day_told, dollars
from capplan.report.received.scenario_change import (
    Changes,
    Row,
    ScenarioChange,
    WrittenPlan,
)
from capplan.report.render.markdown import plain

MARK = "<!-- capplan -->"
"""First line, by which the comment is found."""
_MOST_CAUSES = 4
_LEFT_OUT = "\n\nThe rest is in comment.md, of the job's files.\n"
_MENTION = re.compile(r"(?<![\w`])@(?=\w)")


def title(changes: Changes) -> str:
    """Return what the bill moves by; of one scenario alone its answer."""
    (old, new), only = changes.bill, changes.only
    moved, share = changes.bill.moved, changes.bill.share
    if not changes.is_compared and only is not None and only.new is not None:
        return only.new.explained.headline
    if moved is None:
        return "What the change costs cannot be told"
    if not changes.is_compared:
        return f"{plural(len(changes.each), 'scenario')} for {dollars(new)} a month"
    if not round(moved):
        another = any(change.has_changed for change in changes.each)
        return f"{'Same cost' if another else 'No change'}: {dollars(new)} a month"
    percent = f" ({sign(moved)}{abs(100 * share):,.3g} %)" if share else ""
    return f"{_moved(moved)} a month: {dollars(old)} → {dollars(new)}{percent}"


def changed_text(changes: Changes, failures: Sequence[str], most: float = inf) -> str:
    """Return the comment; of what is longer than ``most`` characters its beginning."""
    only = changes.only
    fails = f"**Check fails: {plain('; '.join(failures))}.**" if failures else ""
    head = [MARK, f"### {plain(title(changes))}"]
    if only is not None:
        head += [" ".join(filter(None, (_answer(only), fails))), *_body(only)]
        folded = [_details(plan) for plan in changes.after]
    else:
        head += [fails, "", *_all(changes)]
        folded = [_folded(change) for change in changes.each if change.has_changed]
    whole = ""
    for text in (*(f"{line}\n" for line in head), *(f"\n{part}\n" for part in folded)):
        text = _MENTION.sub("@\u200b", text)
        if len(whole) + len(text) + len(_LEFT_OUT) > most:
            return whole + _LEFT_OUT
        whole += text
    return whole


def _moved(usd: float | None) -> str:
    return "" if usd is None else f"{sign(usd)}{dollars(abs(usd))}"


def _answer(change: ScenarioChange) -> str:
    """Return what to buy in place of what, and whether it holds."""
    plan, old = change.new, change.old.gpus if change.old else {}
    if plan is None:
        return f"{plain(change.scenario)} is removed."
    bought = plain(re.split(r" for |; |\.$", plan.explained.headline)[0])
    if not plan.gpus:
        return f"**{plain(plan.explained.headline)}**"
    instead = ""
    if old and old != plan.gpus:
        is_same_type = len(old) == 1 and old.keys() == plan.gpus.keys()
        counts = [f"{n:,g}{'' if is_same_type else f' {x}'}" for x, n in old.items()]
        instead = f" instead of {plain(format_list(counts))}"
    return f"**{bought}**{instead}. The {plain(' '.join(plan.held))}."


def _body(change: ScenarioChange) -> Iterator[str]:
    """Yield the figures, why they moved, and what would be cheaper."""
    yield from ("", *_table(change.scenario, change.rows), "")
    if change.why_no_old:
        yield f"Before, it could not be planned: {plain(change.why_no_old)}"
    diff = change.diff
    if diff is not None and diff.effects is not None and change.has_changed:
        causes = [
            f"`{c.what.replace('`', '')}` {plain(c.old)} → {plain(c.new)}"
            for c in diff.causes
        ]
        more = len(causes) - _MOST_CAUSES
        causes[_MOST_CAUSES:] = [f"{more:,} more"] if more > 0 else []
        effects = diff.effects
        amount = _moved((effects.volume_cents + effects.rest_cents) / 100)
        why = f"Why: {', '.join(causes)}: {amount}. " if causes else ""
        yield f"{why}Prices: {_moved(effects.price_cents / 100)}{_days(change)}."
    if change.new is not None and (cheaper := list(_cheaper(change.new))):
        yield f"Cheaper: {'. '.join(cheaper)}."


def _days(change: ScenarioChange) -> str:
    """Return of which days the prices are."""
    sides = []
    for plan in (change.old, change.new):
        best = None if plan is None else plan.figures.best
        pools = () if best is None else best.pools
        days = {str(pool.price["as_of"]) for pool in pools if pool.price.get("as_of")}
        sides.append(format_list(sorted(map(day_told, days))))
    if not all(sides):
        return ""
    same = f", of {sides[1]} on both sides"
    return (
        same if sides[0] == sides[1] else f", of {sides[0]} before and {sides[1]} after"
    )


def _cheaper(plan: WrittenPlan) -> Iterator[str]:
    """Yield other ways that cost less, and what they miss."""
    for table in plan.explained.instead:
        headings = [column.heading for column in table.columns]
        for cells in table.rows:
            row = dict(zip(headings, cells, strict=True))
            if not row.get("change", "").startswith("−"):
                continue
            star = "*" * row.get("a month", "").endswith("*")
            told = row.get("peak", "")
            name = told.removeprefix("misses: ") if "misses: " in told else cells[0]
            yield plain(f"{name}: {row['change']}{star}")


def _table(name: str, rows: Sequence[Row]) -> list[str]:
    lines = [(plain(name), "before", "after", "change"), ("---", *["--:"] * 3)]
    for what, *texts, moved in (map(plain, row) for row in rows):
        bold = f"**{moved}**" if moved and what == "$ a month" else moved
        lines.append((what, *texts, bold))
    return [f"| {' | '.join(cells)} |" for cells in lines]


def _all(changes: Changes) -> list[str]:
    """Return a row for each scenario: its bill, and whether its peak holds."""
    lines = [["scenario", "before", "after", "change", "peak", "sure"]]
    lines.append(["---", "--:", "--:", "--:", "---", "---"])
    for change in changes.each:
        plan, (old, new) = change.new, change.bill
        before = "" if not (change.old or change.why_no_old) else dollars(old) or "?"
        after = "" if plan is None else dollars(new) or "?"
        told = (plan.held[1], plan.sure) if plan else ("removed", "")
        texts = [before, after, _moved(change.bill.moved), *map(plain, told)]
        lines.append([plain(change.scenario), *texts])
    return [f"| {' | '.join(cells)} |" for cells in lines]


def _details(plan: WrittenPlan) -> str:
    """Return the plan, its command and what it rests on, folded."""
    _, _, rest = plan.brief.partition("\n")
    rest = re.sub(r"^#+", "####", rest, flags=re.MULTILINE).strip()
    summary = "<summary>The plan, its command and what it rests on</summary>"
    return f"<details>{summary}\n\n{rest}\n\n</details>"


def _folded(change: ScenarioChange) -> str:
    lines = [f"<details><summary>{escape(change.scenario)}</summary>", ""]
    lines += [_answer(change), *_body(change), "", "</details>"]
    return "\n".join(lines)
