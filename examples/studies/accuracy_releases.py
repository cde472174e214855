"""What the accuracy page said of each group at each release, beside what it says today.

    python examples/studies/accuracy_releases.py --docs docs/internals/accuracy.md
    python examples/studies/accuracy_releases.py --docs docs/internals/accuracy.md \
        --keep 0.4.0

The first writes the last release's TPOT (predicted over measured, of groups predicted
without them) beside today's; the second keeps today's as that of a release, in
``docs/internals/accuracy_releases.csv``. Both print the groups whose error grew by more
than five points; each needs a line in ``docs/changes/unreleased.md`` that names it.
"""

import argparse
import csv
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

KEPT = Path(__file__).parents[2] / "docs/internals/accuracy_releases.csv"
FIELDS = ("release", "llm", "gpu", "engine", "source", "tpot")
MOST_POINTS = 5.0
"""By which the error of a group grows without a word in the changes."""
_HEADER = "| LLM | GPU | engine | source | by | runs | TPOT |"
_AT = 7
"""Place of the column behind TPOT."""

Figures = dict[tuple[str, ...], str]
"""TPOT, predicted over measured, by LLM, GPU, engine and source."""


class Grown(NamedTuple):
    """A group whose error grew."""

    llm: str
    gpu: str
    engine: str
    before: float  # predicted over measured
    now: float

    def __str__(self) -> str:
        """Return its name, as a line of the changes has it."""
        return f"{self.llm} on {self.gpu}, {self.engine}"


def last_release(path: Path = KEPT) -> tuple[str, Figures]:
    """Return the newest release and its figures."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    newest: str = rows[-1]["release"]
    of = [row for row in rows if row["release"] == newest]
    return newest, {tuple(row[name] for name in FIELDS[1:5]): row["tpot"] for row in of}


def is_of_groups(lines: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Yield each line of the page, and whether it is of the table of groups."""
    inside = False
    for line in lines:
        inside = line.startswith(_HEADER) or (inside and line.startswith("|"))
        yield line, inside


def cells(line: str) -> list[str]:
    """Return the cells of a line of a table."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def figures_of(page: str) -> Figures:
    """Return what a page says of each group."""
    rows = [cells(line) for line, inside in is_of_groups(page.splitlines()) if inside]
    return {tuple(row[:4]): row[6] for row in rows[2:]}


def grown(now: Figures, before: Figures) -> list[Grown]:
    """Return the groups of both whose error grew by more than five points."""
    found = []
    for (llm, gpu, engine, source), tpot in now.items():
        was = before.get((llm, gpu, engine, source), "–")
        if "–" in (tpot, was):
            continue
        points = 100 * (abs(float(tpot) - 1) - abs(float(was) - 1))
        if points > MOST_POINTS + 1e-9:
            found.append(Grown(llm, gpu, engine, float(was), float(tpot)))
    return found


def beside(page: str, release: str, before: Figures) -> str:
    """Return a page whose table of groups has the figures of a release too."""
    lines, has = [], 0
    for line, inside in is_of_groups(page.splitlines()):
        if not inside:
            lines.append(line)
            continue
        row = cells(line)
        told = before.get(tuple(row[:4]), "–")
        if line.startswith(_HEADER):
            told, has = f"TPOT, {release}", int(row[_AT].startswith("TPOT, "))
        row[_AT : _AT + has] = ["---" if row[0] == "---" else told]
        is_rule = row[0] == "---"
        lines.append(f"|{'|'.join(row)}|" if is_rule else f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", type=Path, required=True, help="the accuracy page")
    parser.add_argument("--keep", metavar="RELEASE", help="keep its figures as of this")
    arguments = parser.parse_args()
    page = arguments.docs.read_text(encoding="utf-8")
    now = figures_of(page)
    if arguments.keep:
        with KEPT.open("a", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows((arguments.keep, *key, tpot) for key, tpot in now.items())
    release, before = last_release()
    arguments.docs.write_text(beside(page, release, before), encoding="utf-8")
    for one in grown(now, before):
        print(f"{one}: TPOT {one.before:.2f} in {release}, {one.now:.2f} now")


if __name__ == "__main__":
    main()
