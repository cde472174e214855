"""The house holds: floors, size of functions and folders, nothing out of reach."""

import ast
import re
from pathlib import Path

from importlinter.cli import lint_imports

from capplan.cli.commands import COMMANDS
from capplan.engines.catalog import ENGINES, VLLM
from capplan.report.questions import QUESTIONS

PACKAGE = Path(__file__).parent.parent / "capplan"
MOST_LINES_OF_A_FUNCTION = 100
MOST_FILES_OF_A_FOLDER = 40
STARTED_BY_NAME = {
    "capplan.hatch_build",
    "capplan.profiling.torch_backend",
    "capplan.profiling.vllm_backend",
}
"""By the build of a wheel, or in the process that measures."""


def sources() -> dict[str, Path]:
    """Return the file of each module."""
    modules = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        modules[".".join(part for part in parts if part != "__init__")] = path
    return modules


def mentioned(name: str, path: Path) -> set[str]:
    """Return what a module may load: its imports, and names in its tables."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            parent = name.rpartition(".")[0]
            place = node.value.partition(":")[0]  # of ``module:name``
            found |= {place, f"{name}.{place}", f"{parent}.{place}"}
        elif isinstance(node, ast.Name) and node.id == "iter_modules":
            parent = name.rpartition(".")[0]
            found |= {f"{parent}.{file.stem}" for file in path.parent.glob("*.py")}
    return found


def test_floors():
    assert lint_imports(no_cache=True) == 0


def test_every_module_is_reached_from_a_command_or_from_the_package():
    modules = sources()
    reached: set[str] = set()
    waiting = ["capplan", "capplan.__main__", *STARTED_BY_NAME]
    waiting += [f"capplan.cli.{row.module}" for row in COMMANDS.values()]
    for row in QUESTIONS.values():
        for place in (row.compute, f"report.pages.{row.page}"):
            waiting.append(f"capplan.{place}".partition(":")[0])
    while waiting:
        name = waiting.pop()
        if name in modules and name not in reached:
            reached.add(name)
            waiting += mentioned(name, modules[name])
            waiting.append(name.rpartition(".")[0])

    assert set(modules) == reached


def test_what_the_name_of_an_engine_means_stands_in_its_own_file():
    others = {row.name for row in ENGINES.values()} - {VLLM.name}
    naming = set()
    for name, path in sources().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and node.value in others:
                naming.add(name.removeprefix("capplan."))

    # Its scheduler's name, published systems, and formats of its own.
    beside = {"simulator.schedulers", "planning.compare.systems"}
    beside |= {"latency.aiconfigurator", "calibration.load_formats"}
    assert naming - beside == {f"engines.{name}" for name in others}


def test_no_function_is_too_long():
    long = []
    for path in sources().values():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > MOST_LINES_OF_A_FUNCTION:
                    long.append(f"{path}:{node.lineno} {node.name}: {lines} lines")

    assert long == []


def test_each_folder_has_few_files_and_a_page_that_says_what_it_holds():
    folders = {path.parent for path in sources().values()}
    large = [
        f"{folder}: {count} files"
        for folder in sorted(folders)
        if (count := len(list(folder.glob("*.py")))) > MOST_FILES_OF_A_FOLDER
    ]
    bare = [str(folder) for folder in folders if not (folder / "README.md").is_file()]

    assert large == bare == []


def test_the_page_of_a_folder_names_files_that_are_there():
    for page in sorted(PACKAGE.rglob("*/README.md")):
        for name in re.findall(r"`((?:\w+/)*\w+\.py)`", page.read_text("utf-8")):
            places = (PACKAGE, PACKAGE.parent, page.parent.parent)
            here = any(page.parent.rglob(name))
            assert here or any((place / name).is_file() for place in places), page
