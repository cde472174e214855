"""Measure the structure of the package: lines, folders, arrows, arguments.

    python examples/studies/house.py [--docs CONTRIBUTING.md]

Reads sources and runs none. An arrow between rooms of ``planning`` goes from the folder
that imports to the one imported; it goes back up where the order in ``pyproject.toml``
has the imported one above. With ``--docs`` the table of that page is written again.
"""

import argparse
import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "capplan"
BEFORE = {
    "lines of Python in capplan/": ("98,458", "94,458"),
    "files of Python in the largest folder": ("158", "40"),
    "folders without a README": ("27 of 30", "0"),
    "arrows back up between rooms of planning": ("24 of 63", "0"),
    "files in which a function takes `settings`": ("85", "fewer"),
    "files through which `configurations(settings)` hands on its settings": (
        "13",
        "15",
    ),
    "arguments of a function outside simulator/, most": ("14", "8"),
    "lines of a function: median, most": ("10, 96", "10, 96"),
}
"""As before the rooms (24 of 63 as sorted by hand into eleven), and the goal."""


def sources() -> dict[str, ast.Module]:
    """Return the syntax tree of each module, by its dotted name."""
    trees = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        trees[name] = ast.parse(path.read_text(encoding="utf-8"))
    return trees


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Yield the functions and methods of a module."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def arguments(function: ast.FunctionDef) -> list[str]:
    """Return the names of a function's arguments, without self."""
    given = function.args
    names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return [name for name in names if name not in ("self", "cls")]


def imports(tree: ast.Module) -> dict[str, tuple[str, str]]:
    """Return module and name of what ``from … import`` brings, by its local name."""
    return {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def arrows(trees: dict[str, ast.Module]) -> tuple[int, int]:
    """Return how many arrows between rooms of planning go back up, and all."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    layers = next(
        contract["layers"]
        for contract in contracts["importlinter"]["contracts"]
        if contract.get("containers") == ["capplan.planning"]
    )
    rank = {room: i for i, layer in enumerate(layers) for room in layer.split(" | ")}
    found = set()
    for name, tree in trees.items():
        if name.startswith("capplan.planning."):
            room = name.split(".")[2]
            for module, _ in imports(tree).values():
                if module.startswith("capplan.planning."):
                    found.add((room, module.split(".")[2]))
    between = {(one, other) for one, other in found if one != other}
    back = [pair for pair in between if rank[pair[1]] <= rank[pair[0]]]
    return len(back), len(between)


def handed_on(trees: dict[str, ast.Module], module: str, name: str) -> set[str]:
    """Return the modules to which a function hands on its first argument, itself among.

    As it stands: ``f(settings)`` and ``partial(f, settings)`` are followed,
    ``f(settings.tp)`` is not.
    """
    seen: set[tuple[str, str, str]] = set()
    start = next(f for f in functions(trees[module]) if f.name == name)
    ahead = [(module, name, arguments(start)[0])]
    while ahead:
        at = ahead.pop()
        if at in seen:
            continue
        seen.add(at)
        tree = trees[at[0]]
        known = imports(tree) | {f.name: (at[0], f.name) for f in functions(tree)}
        bodies = [f for f in functions(tree) if f.name == at[1]]
        for call in (x for f in bodies for x in ast.walk(f) if isinstance(x, ast.Call)):
            if not isinstance(call.func, ast.Name):
                continue
            called, given = call.func, call.args
            if called.id == "partial" and given and isinstance(given[0], ast.Name):
                called, given = given[0], given[1:]
            into, callee = known.get(called.id, ("", ""))
            for f in functions(trees.get(into, ast.Module([], []))):
                if f.name == callee:
                    pairs = [*zip(arguments(f), given, strict=False)]
                    pairs += [(k.arg, k.value) for k in call.keywords if k.arg]
                    ahead += [
                        (into, callee, name)
                        for name, value in pairs
                        if isinstance(value, ast.Name) and value.id == at[2]
                    ]
    return {module for module, _, _ in seen}


def measured() -> dict[str, str]:
    """Return each measure as it is now."""
    trees = sources()
    files = [path for path in PACKAGE.rglob("*.py") if "_compiled" not in path.parts]
    folders = {path.parent for path in files}
    largest = max(folders, key=lambda folder: len([*folder.glob("*.py")]))
    bare = [folder for folder in folders if not (folder / "README.md").is_file()]
    outside = {k: v for k, v in trees.items() if not k.startswith("capplan.simulator")}
    most, where = max(
        (len(arguments(f)), f"{name}.{f.name}")
        for name, tree in outside.items()
        for f in functions(tree)
    )
    lengths = sorted(
        (f.end_lineno or f.lineno) - f.lineno + 1
        for tree in trees.values()
        for f in functions(tree)
    )
    back, between = arrows(trees)
    handed = [
        name
        for name, tree in trees.items()
        if any("settings" in arguments(f) for f in functions(tree))
    ]
    at_door = "capplan.planning.configure.configuration"
    through = handed_on(trees, at_door, "configurations")
    through |= handed_on(
        trees, at_door, "_configurations"
    )  # settings as `asked` of them
    lines = sum(path.read_text(encoding="utf-8").count("\n") for path in files)
    count = len([*largest.glob("*.py")])
    values = (
        f"{lines:,}",
        f"{count} ({largest.relative_to(ROOT)})",
        f"{len(bare)} of {len(folders)}",
        f"{back} of {between}",
        f"{len(handed)}",
        f"{len(through)}",
        f"{most} ({where.removeprefix('capplan.')})",
        f"{lengths[len(lengths) // 2]}, {lengths[-1]}",
    )
    return dict(zip(BEFORE, values, strict=True))


def main() -> None:
    """Print the table, or write it into a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", type=Path)
    docs = parser.parse_args().docs
    rows = ["| | before | now | goal |", "|---|---|---|---|"]
    for what, now in measured().items():
        before, goal = BEFORE[what]
        rows.append(f"| {what} | {before} | {now} | {goal} |")
    table = "\n".join(rows)
    if docs is None:
        print(table)
        return
    text = docs.read_text(encoding="utf-8")
    marked = re.compile(r"(<!-- house -->\n).*?(<!-- /house -->)", re.DOTALL)
    docs.write_text(marked.sub(rf"\g<1>{table}\n\g<2>", text), encoding="utf-8")


if __name__ == "__main__":
    main()
