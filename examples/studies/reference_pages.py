"""Write the pages of names, prices and fields from what capplan ships.

    python examples/studies/reference_pages.py --docs docs/reference

The tests compare each page with what this writes.
"""

import argparse
import csv
import io
import re
from contextlib import redirect_stdout
from pathlib import Path

from capplan.cli.main import exit_code

ROOT = Path(__file__).parents[2]
NAMES = """# LLMs, GPUs and other names

What settings take by name, as `capplan list KIND` prints it. `capplan list` names the
kinds; providers and their prices are [a page of their own](prices.md).
"""
PRICES = """# Prices

What providers ask for nodes and GPU-hours, as `capplan prices` prints it, which also
says which offers a plan of today takes. How a plan takes one of them:
[money](../guides/money.md#nodes-and-offers). Storage, network and staff are not in it.
"""
FIELDS = """# Fields

Names in JSON, CSV and Python, with their units. [Words](words.md) has those that people
use most.

| name | unit | meaning | source |
|---|---|---|---|
"""
LEFT_OUT = ("NVLink", "$ per month", "plans buy")
"""Columns of prices that depend on the day, or follow from others."""


def pages() -> dict[str, str]:
    """Return the content of each page by its file."""
    parts = [
        f"## {what[0].upper()}{what[1:]}\n\nFor `{flag}`.\n\n"
        + written(table("list", kind))
        for kind, flag, _, what in table("list")[2:]
        if kind != "providers"
    ]
    offers = table("prices")
    kept = [i for i, name in enumerate(offers[0]) if name not in LEFT_OUT]
    with (ROOT / "capplan/nomenclature.csv").open(encoding="utf-8", newline="") as file:
        fields = [list(row.values()) for row in csv.DictReader(file)]
    prices = [[row[i] for i in kept] for row in offers]
    rows = [[f"`{name}`", *(escaped(text) for text in more)] for name, *more in fields]
    return {
        "names.md": f"{NAMES}\n" + "\n".join(parts),
        "prices.md": f"{PRICES}\n" + written(prices),
        "fields.md": FIELDS + written(rows),
    }


def table(*command: str) -> list[list[str]]:
    """Return the rows of the table that a command prints, its head first."""
    with redirect_stdout(io.StringIO()) as out:
        assert exit_code([*command, "--format", "md", "--quiet"]) == 0
    lines = [line for line in out.getvalue().splitlines() if line.startswith("| ")]
    return [line[2:-2].split(" | ") for line in lines]


def written(rows: list[list[str]]) -> str:
    """Return rows as lines of a Markdown table."""
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def escaped(text: str) -> str:
    """Return a text that may stand in a cell of a table, pages of the docs linked."""
    text = re.sub(r"docs/(\w+/(\w+)\.md)", r"[\2](../\1)", text)
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def main() -> None:
    """Write the pages into a folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--docs", type=Path, required=True)
    folder = parser.parse_args().docs
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
