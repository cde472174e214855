"""What the package declares, installs and says of itself."""

import ast
import importlib.util
import re
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from capplan.cli.main import exit_code

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
MODULES = {"pyyaml": "yaml"}
"""Packages whose module has another name."""
BY_OTHERS = {"markupsafe", "hatchling", "anyio", "mcp_types"}
"""Packages that others bring, as Jinja2 MarkupSafe and the SDK of MCP its types."""


def names(requirements):
    return {re.split(r"[<>=~!\[ ]", text)[0] for text in requirements}


def imported():
    """Return the packages that some file of capplan imports."""
    found = set()
    for path in (ROOT / "capplan").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.split(".")[0])
    return found - set(sys.stdlib_module_names) - {"capplan"}


def test_every_dependency_is_imported_and_every_import_is_declared():
    declared = {MODULES.get(name, name) for name in names(PROJECT["dependencies"])}
    extras = {
        MODULES.get(name, name)
        for extra, required in PROJECT["optional-dependencies"].items()
        if extra != "dev"
        for name in names(required)
    }

    found = imported()

    assert declared - found == set()
    # aiconfigurator's tables come as a package of data, asked for by a message.
    undeclared = {each for each in found - declared - extras - BY_OTHERS}
    assert undeclared <= {"aiconfigurator_core", "aiconfigurator"}


def test_a_wheel_is_compiled_with_what_it_will_run_with():
    wheel = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]

    assert set(wheel["hooks"]["custom"]["dependencies"]) < set(PROJECT["dependencies"])


@pytest.mark.parametrize("package", ["highspy", "plotly", "tokenizers"])
def test_what_few_need_is_no_dependency_of_the_core(package):
    assert package not in names(PROJECT["dependencies"])


def test_without_tokenizers_the_message_says_which_extra_to_install(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "t.json").write_text(
        '[{"conversations": [{"from": "human", "value": "a"},'
        ' {"from": "gpt", "value": "b"}]}]'
    )

    code = exit_code(
        [
            *("search", "--trace", str(tmp_path / "t.json"), "--slo", "tpot=30ms"),
            *("--llm", "Llama-3.1-8B", "--gpu", "H100-SXM"),
            *("--tokenizer", str(tmp_path / "tokenizer.json")),
        ]
    )

    said = capsys.readouterr().err
    assert code == 2
    assert "pip install 'capplan[tokenizer]'" in said
    assert "tokenizer" in PROJECT["optional-dependencies"]


def test_the_classifiers_name_every_python_from_the_floor_on():
    listed = [
        text.rpartition(" ")[2]
        for text in PROJECT["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", text)
    ]

    assert listed == [f"3.{minor}" for minor in range(11, 15)]
    assert PROJECT["requires-python"] == ">=3.11"


def for_index(repository):
    """Return the README as the build makes it, and its links."""
    pytest.importorskip("hatchling")
    path = ROOT / "capplan" / "hatch_build.py"
    spec = importlib.util.spec_from_file_location("hatch_build", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    readme = (ROOT / "README.md").read_text()
    text = module.for_index(readme, repository, PROJECT["version"])
    return text, re.findall(r"(!?)\[[^\[\]]*(?:\[[^\]]*\][^\[\]]*)*\]\(([^)]+)\)", text)


def test_on_an_index_page_every_link_and_picture_is_a_file_at_the_versions_tag():
    repository = "https://example.org/owner/capplan"

    _, links = for_index(repository)

    assert len(links) > 20
    assert [path for mark, path in links if mark]  # the picture
    for mark, path in links:
        at = f"{repository}/{'raw' if mark else 'blob'}/{PROJECT['version']}/"
        assert path.startswith(("https://", at))
        if path.startswith(at):
            assert (ROOT / path.removeprefix(at).partition("#")[0]).exists(), path


def test_without_a_repository_an_index_page_has_no_link_that_leads_nowhere():
    text, links = for_index(None)

    assert [path for _, path in links if not path.startswith("https://")] == []
    assert "first plan" in text


def test_the_built_metadata_has_the_readme_of_an_index_page():
    core = pytest.importorskip("hatchling.metadata.core")
    plugins = pytest.importorskip("hatchling.plugin.manager").PluginManager()

    built = core.ProjectMetadata(str(ROOT), plugins).core

    urls = PROJECT.get("urls", {})
    assert built.readme_content_type == "text/markdown"
    assert built.readme == for_index(urls.get("Repository"))[0]


def test_a_tagged_commit_has_the_version_of_its_tag_and_its_page_of_changes():
    asked = ["git", "-C", str(ROOT), "tag", "--points-at", "HEAD"]
    told = subprocess.run(asked, capture_output=True, text=True)  # of a sdist: nothing
    tags = told.stdout.split() if (ROOT / ".git").exists() else []

    if tags:
        assert PROJECT["version"] in tags
        assert (ROOT / "docs" / "changes" / f"{PROJECT['version']}.md").exists()


def test_every_extra_that_is_named_exists():
    named = set()
    for path in [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("capplan/**/*.py"),
    ]:
        named |= set(
            re.findall(r"capplan\[([a-z]+)\]", path.read_text(encoding="utf-8"))
        )

    assert named
    assert named <= PROJECT["optional-dependencies"].keys()


def test_the_citation_is_of_this_version():
    cited = yaml.safe_load((ROOT / "docs" / "CITATION.cff").read_text())

    assert cited["version"] == PROJECT["version"]
    assert cited["license"] == PROJECT["license"]
    assert cited["authors"] == PROJECT["authors"]


def test_the_documents_say_what_the_core_weighs_and_what_pulp_is_for():
    told = (ROOT / "docs/reference/commands.md").read_text()

    assert re.search(r"\d+ MB", told)
    assert "pulp" in (ROOT / "docs/how/placement.md").read_text().lower()
    assert "capplan[tokenizer]" in told


MOST_MB = 740
"""What the core may weigh, pip and setuptools included. [10⁶ bytes]"""


def closure(requirements):
    """Return the installed distributions that requirements need, without extras."""
    found, waiting = {}, [Requirement(text) for text in requirements]
    while waiting:
        asked = waiting.pop()
        if asked.marker and not asked.marker.evaluate({"extra": ""}):
            continue
        name = canonicalize_name(asked.name)
        if name not in found:
            found[name] = distribution(name)
            waiting += [Requirement(text) for text in found[name].requires or ()]
    return found


def test_the_core_weighs_less_than_it_may_and_about_what_the_documents_say():
    told = (ROOT / "docs/reference/commands.md").read_text()
    told_mb = int(re.search(r"The core takes (\d+) MB", told).group(1))

    installed = closure(PROJECT["dependencies"])
    paths = {
        path.locate()
        for each in installed.values()
        for path in each.files or ()
        if path.suffix != ".pyc"  # compiled when first imported, or not
    }
    found_mb = sum(path.stat().st_size for path in paths if path.is_file()) / 1e6

    assert found_mb < told_mb <= MOST_MB
    assert found_mb > 0.7 * told_mb
    assert "plotly" not in installed
    assert "highspy" not in installed
