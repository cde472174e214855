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
from collections.abc import Iterator, Sequence
from datetime import datetime
from glob import glob
from pathlib import Path
from typing import Any, NamedTuple

import capplan
from capplan.cli.asked import INFEASIBLE
from capplan.cli.scenario import raw_settings
from capplan.errors import InputError
from capplan.input_file import content_sha256, files_of
from capplan.shipped import own_version
from capplan.simulator.schedulers.own_file import file_of

_SECRET = re.compile("TOKEN|SECRET|PASSWORD|_KEY$")
"""Variables that a plan does not see."""
_SEPARATORS = ("[,]", "[:]", "[=]", "[@]", "[,:=@]")
"""What may stand around the name of a file within a setting."""


class Tree(NamedTuple):
    """Files of a repository, and where in it the scenarios are named from."""

    root: Path
    folder: Path


def git(*words: str, at: Path, **more: str) -> str:
    """Return what git prints; an error is one line."""
    try:
        done = subprocess.run(
            ["git", *words],
            cwd=at,
            env={**os.environ, **more},
            capture_output=True,
            text=True,
        )
    except FileNotFoundError:
        raise InputError("git is not installed; it has the files of --base") from None
    if done.returncode:
        told = done.stderr.strip().splitlines() or ["failed"]
        raise InputError(f"git {words[0]}: {told[-1]}")
    return done.stdout.strip()


def working_tree(at: Path) -> Tree:
    """Return the files as they are."""
    return Tree(Path(git("rev-parse", "--show-toplevel", at=at)), at)


def tree_of(commit: str, now: Tree, into: Path) -> Tree:
    """Return the files of a commit, written into a folder; nothing of it is run."""
    try:
        found = git(
            *("rev-parse", "--verify", "--quiet", "--end-of-options"),
            f"{commit}^{{commit}}",
            at=now.root,
        )
    except InputError:
        found = _fetched(commit, now.root)
    index = {"GIT_INDEX_FILE": str(into / "index")}
    root = into / "base"
    git("read-tree", found, at=now.root, **index)
    git("checkout-index", "--all", f"--prefix={root}/", at=now.root, **index)
    return Tree(root, root / now.folder.relative_to(now.root))


def _fetched(commit: str, root: Path) -> str:
    """Return a commit that a shallow clone lacks, fetched by its digits."""
    if re.fullmatch("[0-9a-f]{40}", commit):
        try:
            is_shallow = git("rev-parse", "--is-shallow-repository", at=root) == "true"
            depth = ["--depth=1"] * is_shallow
            git("fetch", "--quiet", *depth, "origin", commit, at=root)
            return git("rev-parse", "--verify", f"{commit}^{{commit}}", at=root)
        except InputError:
            pass
    raise InputError(
        f"--base {commit[:60]!r} is no commit of this clone, and cannot be fetched; "
        "expected one such as origin/main (actions/checkout: fetch-depth: 0)"
    )


def scenarios_of(tree: Tree, patterns: Sequence[str]) -> list[str]:
    """Return the scenarios of patterns such as ``capacity/*.yaml``, in order."""
    found: set[str] = set()
    for pattern in patterns:
        if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
            raise InputError(f"{pattern}: expected a path within the repository")
        found |= {*glob(pattern, root_dir=tree.folder, recursive=True)}
    return sorted(name for name in found if (tree.folder / name).is_file())


class Planner(NamedTuple):
    """How every scenario is planned, on both sides."""

    args: tuple[str, ...]  # more flags of capplan plan
    day: str  # that prices are looked at
    plans: Path  # folders of plans, by what they are of
    trusts: bool

    def plan(self, tree: Tree, scenario: str) -> Path:
        """Return the folder of a scenario's plan, made unless it is there."""
        digest = self._digest(tree, scenario)
        folder = self.plans / digest
        if not (folder / "plan.json").exists():
            made = self.plans / f"{digest}.{os.getpid()}"
            self._run(tree, scenario, made)
            shutil.rmtree(folder, ignore_errors=True)
            made.rename(folder)
        return folder

    def _digest(self, tree: Tree, scenario: str) -> str:
        """Return the digest of all that a plan is of: version, day, flags, files."""
        path = tree.folder / scenario
        own = [] if self.trusts else [tree.root.resolve()]
        _, settings = raw_settings(path)
        texts = list(_texts(settings))
        scheduler = str(settings.get("scheduler") or "")
        if file_of(scheduler) and not self.trusts:
            raise InputError(
                f"{scenario}: its scheduler is the Python file {file_of(scheduler)}, "
                "which is executed; read it, then give --trust"
            )
        if settings.get("ray_address") and not self.trusts:
            raise InputError(
                f"{scenario}: names a Ray cluster, which can execute code here; leave "
                "out ray_address, or give --trust"
            )
        files = {path, *_files(tree, path, texts)}
        for file in sorted(files) if own else ():
            if not file.resolve().is_relative_to(own[0]):
                raise InputError(
                    f"{scenario}: {file.name} lies outside the repository; put it "
                    "there, or give --trust"
                )
        files |= {*_files(tree, path, self.args)}
        digests = {
            os.path.relpath(file, tree.folder): content_sha256(file) for file in files
        }
        of = [own_version(), self.day, self.args, scenario, sorted(digests.items())]
        return hashlib.sha256(json.dumps(of).encode()).hexdigest()[:32]

    def _run(self, tree: Tree, scenario: str, out: Path) -> None:
        """Plan in a process whose folder is the tree's, from which no code is taken."""
        words = ["plan", scenario, *self.args, "--quiet", "--out", str(out)]
        environment = {k: v for k, v in os.environ.items() if not _SECRET.search(k)}
        noon = datetime.fromisoformat(f"{self.day}T12:00+00:00")
        environment["SOURCE_DATE_EPOCH"] = f"{noon.timestamp():.0f}"
        environment["PYTHONPATH"] = str(Path(capplan.__file__).parents[1])
        done = subprocess.run(
            [sys.executable, "-P", "-m", "capplan", *words],
            cwd=tree.folder,
            env=environment,
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


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts of a value of YAML."""
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, str):
        yield value


def _files(tree: Tree, scenario: Path, texts: Sequence[str]) -> Iterator[Path]:
    """Yield the files that texts may name, beside a scenario or from the folder."""
    pieces = {
        piece for text in texts for by in _SEPARATORS for piece in re.split(by, text)
    }
    for piece in sorted({*pieces, *texts}):
        for folder in (scenario.parent, tree.folder):
            path = folder / piece.strip()
            try:
                exists = bool(piece.strip(" ./")) and path.exists()
            except (OSError, ValueError):  # too long, or with a NUL
                continue
            if exists:
                yield from files_of(path)
                beside = path.with_name("hf_quant_config.json")  # read with config.json
                yield from [beside] * beside.is_file()
