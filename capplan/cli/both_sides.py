"""Plans of scenarios as they are and as a commit has them, for ``capplan ci``.

A plan runs in a process of its own, without the tokens of its caller. Scenarios come
from whoever proposes the change: unless they are trusted, none is planned that names a
Python file as its scheduler, a cluster, or a file outside the repository.
"""

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from calendar import timegm
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from glob import glob
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import capplan
from capplan.cli.answer import note
from capplan.cli.asked import INFEASIBLE
from capplan.cli.scenario import raw_settings
from capplan.errors import InputError
from capplan.input_file import content_sha256, files_of
from capplan.report.received.scenario_change import Changes, ScenarioChange, WrittenPlan
from capplan.shipped import own_version
from capplan.simulator.schedulers.own_file import file_of
from capplan.today import current_day

_SEEN = re.compile("PATH|HOME|TMPDIR|LANG|(LC|LD|XDG|NUMBA|OMP|OPENBLAS)_.*")
"""Variables that a plan sees: no token is among them."""
_SEPARATORS = ("[,]", "[:]", "[=]", "[@]", "[,:=@]")
"""What may stand around the name of a file within a setting."""


def both_sides(
    patterns: Sequence[str],
    base: str,
    args: Sequence[str],
    cache: Path | None,
    out: Path,
    *,
    trusts: bool,
) -> Changes:
    """Plan each scenario of the working tree and of a base; keep the plans' files."""
    root = Path(_git("rev-parse", "--show-toplevel", at=Path.cwd()))
    for folder in filter(None, (out, cache)):
        at = Path(os.path.abspath(folder))
        if at.is_relative_to(root) and (
            at != at.resolve()
            or _git("ls-files", "--", str(at), at=root, GIT_LITERAL_PATHSPECS="1")
        ):
            raise InputError(f"{folder} comes with the repository; expected another")
    with TemporaryDirectory(prefix="capplan-ci-") as temporary:
        now = Tree(root, Path.cwd())
        before = _tree_of(base, now, Path(temporary)) if base else None
        trees = (now, before) if before else (now,)
        names = {name for tree in trees for name in _scenarios(tree, patterns)}
        if not names:
            raise InputError(f"no scenario is {' or '.join(patterns)}")
        plans = (cache or Path(temporary, "plans")).absolute()
        planner = _Planner(args, current_day(), plans, trusts)
        each = [planner.change(x, now, before, out / x) for x in sorted(names)]
    return Changes(each, is_compared=before is not None)


class Tree(NamedTuple):
    """Files of a repository, and where in it the scenarios are named from."""

    root: Path
    folder: Path


def _git(*words: str, at: Path, **more: str) -> str:
    """Return what git prints; an error is one line."""
    how: dict[str, Any] = {"cwd": at, "env": {**os.environ, **more}}
    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True, **how)
    except FileNotFoundError:
        raise InputError("git is not installed; capplan ci needs it") from None
    if done.returncode:
        told = done.stderr.strip().splitlines() or ["failed"]
        raise InputError(f"git {words[0]}: {told[-1]}")
    return done.stdout.strip()


def _tree_of(commit: str, now: Tree, into: Path) -> Tree:
    """Return the files of a commit, written into a folder; nothing of it is run."""
    found, is_digits = "", re.fullmatch("[0-9a-f]{40}", commit)
    find = ("rev-parse", "--verify", "--quiet", "--end-of-options")
    with suppress(InputError):
        found = _git(*find, f"{commit}^{{commit}}", at=now.root)
    with suppress(InputError):
        if not found and is_digits:
            is_shallow = _git("rev-parse", "--is-shallow-repository", at=now.root)
            depth = ["--depth=1"] * (is_shallow == "true")
            _git("fetch", "--quiet", *depth, "origin", commit, at=now.root)
            found = _git(*find, f"{commit}^{{commit}}", at=now.root)
    if not found:
        raise InputError(
            f"--base {commit[:60]!r} is no commit of this clone, nor can be fetched; "
            "expected one such as origin/main (actions/checkout: fetch-depth: 0)"
        )
    index, root = str(into / "index"), into / "base"
    _git("read-tree", found, at=now.root, GIT_INDEX_FILE=index)
    to = f"--prefix={root}/"
    _git("checkout-index", "--all", to, at=now.root, GIT_INDEX_FILE=index)
    return Tree(root, root / now.folder.relative_to(now.root))


def _scenarios(tree: Tree, patterns: Sequence[str]) -> Iterator[str]:
    """Yield the scenarios of patterns such as ``capacity/*.yaml``."""
    for pattern in patterns:
        if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
            raise InputError(f"{pattern}: expected a path within the repository")
        for name in glob(pattern, root_dir=tree.folder, recursive=True):
            if not name.isprintable():  # a line of it would stand alone
                raise InputError(f"{name!r}: expected a name on one line")
            if (tree.folder / name).is_file():
                yield name


class _Planner(NamedTuple):
    """How every scenario is planned, on both sides."""

    args: Sequence[str]  # more flags of capplan plan
    day: date  # that prices are looked at
    plans: Path  # folders of plans, by what they are of
    trusts: bool

    def change(
        self, name: str, now: Tree, before: Tree | None, out: Path
    ) -> ScenarioChange:
        """Plan a scenario where it is there."""
        shutil.rmtree(out, ignore_errors=True)  # of an earlier run
        new = self._kept(name, now, out)
        try:
            old = self._kept(name, before, out / "before")
        except InputError as error:  # not the fault of the change
            return ScenarioChange(name, None, new, str(error))
        return ScenarioChange(name, old, new)

    def _kept(self, name: str, tree: Tree | None, out: Path) -> WrittenPlan | None:
        """Return a scenario's plan, made unless it is there, and its files in out."""
        if tree is None or not (tree.folder / name).is_file():
            return None
        note(f"planning {name}{' as it was' * (out.name == 'before')}")
        digest = self._digest(tree, name)
        folder = self.plans / digest
        if not (folder / "plan.json").exists():
            made = self.plans / f"{digest}.{os.getpid()}"
            self._run(tree, name, made)
            shutil.rmtree(folder, ignore_errors=True)
            made.rename(folder)
        shutil.copytree(folder, out, dirs_exist_ok=True)
        return WrittenPlan.of(out)

    def _digest(self, tree: Tree, scenario: str) -> str:
        """Return the digest of all that a plan is of: version, day, flags, files."""
        path = tree.folder / scenario
        is_read = self.trusts or _is_within(path, tree)
        settings = raw_settings(path)[1] if is_read else {}
        paths = {path, *_paths(tree, path, _texts(settings))}
        for wrong in () if self.trusts else _untrusted(tree, settings, sorted(paths)):
            raise InputError(f"{scenario}: {wrong}; leave it out, or give --trust")
        paths |= {*_paths(tree, path, self.args)}
        files = {
            os.path.relpath(file, tree.folder): content_sha256(file)
            for file in chain.from_iterable(map(files_of, paths))
        }
        of = [own_version(), str(self.day), [*self.args], scenario, files]
        text = json.dumps(of, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def _run(self, tree: Tree, scenario: str, out: Path) -> None:
        """Plan in a process whose folder is the tree's, from which no code is taken."""
        words = ["plan", scenario, *self.args, "--quiet", "--out", str(out)]
        done = subprocess.run(
            [sys.executable, "-P", "-m", "capplan", *words],
            cwd=tree.folder,
            env={
                **{k: v for k, v in os.environ.items() if _SEEN.fullmatch(k)},
                "SOURCE_DATE_EPOCH": f"{timegm(self.day.timetuple())}",
                "PYTHONPATH": str(Path(capplan.__file__).parents[1]),
            },
            capture_output=True,
            text=True,
        )
        if done.returncode not in (0, INFEASIBLE):
            last = (done.stderr.strip().splitlines() or ["it stopped"])[-1]
            told = last.removeprefix("capplan: error: ")
            named = told.startswith(f"{scenario}:")  # with the line in it
            raise InputError(told if named else f"{scenario}: {told}")
        if not (out / "plan.json").exists():
            raise InputError(
                f"{scenario}: no plan was written; expected a scenario of one LLM"
            )
        for name in ("plan.md", "report.md", "report.html"):  # repeat it elsewhere
            text = (out / name).read_text(encoding="utf-8")
            text = text.replace(f"--quiet --out {shlex.quote(str(out))}", "--out out")
            (out / name).write_text(text, encoding="utf-8")


def _untrusted(
    tree: Tree, settings: Mapping[str, Any], paths: Collection[Path]
) -> Iterator[str]:
    """Yield what a stranger's scenario may not name."""
    if file := file_of(str(settings.get("scheduler") or "")):
        yield f"its scheduler is the Python file {file}, which is executed"
    if settings.get("ray_address"):
        yield "ray_address names a Ray cluster, which can execute code here"
    for path in chain(paths, chain.from_iterable(map(files_of, paths))):
        if not _is_within(path, tree):
            yield f"{path.name} lies outside the repository"


def _is_within(path: Path, tree: Tree) -> bool:
    return path.resolve().is_relative_to(tree.root.resolve())


def _texts(value: Any) -> list[str]:
    """Return the texts in a value of YAML; a number or a day may name a file too."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    parts = value if isinstance(value, list | tuple | set) else ()
    return [str(value), *(text for part in parts for text in _texts(part))]


def _paths(tree: Tree, scenario: Path, texts: Iterable[str]) -> Iterator[Path]:
    """Yield what texts may name, beside a scenario or from the folder."""
    pieces = {
        piece.strip()
        for text in texts
        for by in _SEPARATORS
        for piece in (text, *re.split(by, text))
    }
    for piece in sorted(pieces - {""}):
        for folder in (scenario.parent, tree.folder):
            path = folder / piece
            if os.path.exists(path):  # no error where it is too long, or has a NUL
                yield path
                # Read with config.json, and with the CSV of a workload.
                for name in ("hf_quant_config.json", f"{path.name.split('.')[0]}.yaml"):
                    yield from filter(Path.is_file, [path.parent / name])
