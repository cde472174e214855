"""Collect every string that a person sees, and refuse words that nobody should.

    python examples/studies/strings.py [--out strings.txt]

Help texts, sentences, headings, reasons, warnings, errors and documents, each with file
and line, in one file to be read in one sitting. Offenders against ``BANNED`` are listed
with the words to use instead, and the exit status is 1. Reads sources and runs none.
"""

import argparse
import ast
import csv
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "capplan"
SPOKEN = ("report/pages", "report/charts")
"""Folders where a single word is a label."""
BANNED = {
    r"(?<!-)\b[Aa]ttain(s|ed|ing)?\b(?!_)": "in time (of requests), hold (of fleets)",
    r"(?<![-\w])[Aa]ttainments?\b(?!_| is | \{|: | ·)": "share in time",
    r"\b(meets?|met|meeting) (the|its|their|an) SLO": "in time, or hold the SLO",
    r"\b[Ss]tranded\b(?!_)": "idle",
    r"\b[Uu]tilisation\b(?!_)": "load, as in 74 % loaded",
    r"\b[Ss]ustain": "hold, or carry",
    r"\bheadroom\b": "to spare",
    r"full queue": "a full backlog drains in",
    r"none of chance": "the same random seed",
    r"\brivals?\b": "costs more than the best",
    r"replica seconds": "s of replica time",
    r"settled (state|once)|judged once": "scored after a warm-up",
    r"columns? not read": "ignored columns",
    r"\balike for\b": "also",
    r"benchmark sweep": "load test",
    r"\bin the mean\b": "on average",
    r"is no (whole|rival)": "what it is",
    r"\bdoes with [{\d]": "needs",
    r"that is not feasible|than feasible": "infeasible, and how many",
    r"of a prompt the time": "share of GPU time",
    r"which are no\b": "what they are",
    r"\w\(s\)": "the singular or the plural, by `plural`",
    r"(?<![.,\d−] )(?<![.,\d])1 (days|hours|nodes|GPUs|replicas)\b": "one as one",
    r"(?<!above )(?<!top:)(?<!left:)\{[^{}]*\}%(?!\))": "{100 * share:.0f} %",
    r"(?<![$,.\d])\d{3,}\.\d\d+ (replica|tokens|requests|s of)": "three digits",
}
"""Patterns, each with what to write instead."""
EXEMPT = ("docs/reference/settings.md", "docs/how/papers.md")
"""Pages made from strings collected elsewhere, and with the words of papers."""


_QUOTED = re.compile("'([^']*)'")


class String(NamedTuple):
    """A string that a person sees, and where it stands."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


def strings() -> Iterator[String]:
    """Yield all strings, in the order of their files and lines."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield from of_module(path)
    for name, columns in (
        ("conflicts", ("why", "expected")),
        ("nomenclature", ("meaning",)),
    ):
        yield from of_csv(PACKAGE / f"{name}.csv", columns)
    yield from of_csv(PACKAGE / "report" / "fields.csv", ("heading",))
    pages = {*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *PACKAGE.rglob("*.md")}
    for path in sorted(
        pages - {ROOT / "CHANGELOG.md", *ROOT.glob("docs/changes/*.md")}
    ):
        yield from of_page(path)


def of_module(path: Path) -> Iterator[String]:
    """Yield the strings of a module: no docstrings, no keys, nothing asserted."""
    name = path.relative_to(ROOT).as_posix()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    is_spoken = any(f"/{folder}/" in f"/{name}" for folder in SPOKEN)
    for node in _seen(tree):
        text = _text(node)
        if " " in text.strip() or (is_spoken and re.fullmatch("[A-Za-z]+", text)):
            yield String(name, node.lineno, " ".join(text.split()))


def _seen(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the outermost strings below a node, without those that nobody sees."""
    is_text = isinstance(node, ast.Constant | ast.JoinedStr) or _is_sum(node)
    if is_text and isinstance(node, ast.expr):
        yield node
        return
    if isinstance(node, ast.Assert | ast.Compare):
        return
    if isinstance(node, ast.Subscript):
        yield from _seen(node.value)
        return
    for child in ast.iter_child_nodes(node):
        is_key = isinstance(node, ast.Dict) and child in node.keys
        is_said = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
        if not (is_key or is_said):
            yield from _seen(child)


def _is_sum(node: ast.AST) -> bool:
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)):
        return False
    return any(
        isinstance(side, ast.JoinedStr)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        or _is_sum(side)
        for side in (node.left, node.right)
    )


def _text(node: ast.AST) -> str:
    """Return a string with ``{expression}`` for what is put in, and its strings."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    form = _text(node.format_spec) if getattr(node, "format_spec", None) else ""
    percent = "%" * form.endswith("%")
    return f"{{{ast.unparse(getattr(node, 'value', node))}}}{percent}"


def of_csv(path: Path, columns: tuple[str, ...]) -> Iterator[String]:
    """Yield the cells of columns of a file."""
    name = path.relative_to(ROOT).as_posix()
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        for row in rows:
            texts = [row[column] for column in columns]
            yield from (String(name, rows.line_num, text) for text in texts if text)


def of_page(path: Path) -> Iterator[String]:
    """Yield the paragraphs and rows of tables of a Markdown page."""
    name = path.relative_to(ROOT).as_posix()
    start, lines, is_code = 0, list[str](), False
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if line.startswith("```"):
            is_code = not is_code
        if lines and (is_code or not line or re.match(r"[|#`]|\s*[-*\d.]+ ", line)):
            yield String(name, start, " ".join(lines))
            lines = []
        if line.strip("`|-: "):
            start, lines = number if not lines else start, [*lines, line.strip()]


def offenders(seen: Iterator[String]) -> Iterator[str]:
    """Yield what has banned words, with those to use instead."""
    for string in (each for each in seen if each.file not in EXEMPT):
        for pattern, instead in BANNED.items():
            if found := re.search(pattern, _words(string)):
                yield f"{string}\n    {found[0]!r}: write {instead}"


def _words(string: String) -> str:
    """Return a text without names: of what is put in the strings alone, no `code`."""
    if not string.file.endswith(".py"):
        return re.sub("`[^`]*`", "`", string.text)
    text = re.sub(r"\['[^']*'\]", "", string.text)
    return re.sub(
        r"\{[^{}]*\}", lambda x: f"{{{' '.join(_QUOTED.findall(x[0]))}}}", text
    )


def main() -> None:
    """Write the strings and list the offenders."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found = list(strings())
    if given.out is not None:
        given.out.write_text("".join(f"{string}\n" for string in found), "utf-8")
    wrong = list(offenders(iter(found)))
    print("\n".join([*wrong, f"{len(found):,} strings, {len(wrong):,} offenders"]))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
