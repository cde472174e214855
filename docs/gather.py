"""Gather the pages of the site: ``docs/``, and what its links need of the repository.

    python docs/gather.py build/docs [--repository URL]

Pages and reports outside ``docs/`` that readers need are copied under ``repository/``.
A link to another file of the repository goes to ``URL``, and is plain text without one.
A link to what does not exist stays, and the strict build refuses it.
"""

import argparse
import os
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]
COPIED = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "capplan/**/README.md",
    "examples/README.md",
    "examples/*.yaml",
    "examples/first_plan.ipynb",
    "examples/studies/h100/README.md",
    "reports/README.md",
    "reports/*/report.html",
    "tests/golden/README.md",
)
LEFT_OUT = {".py", ".csv", ".cff"}
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def pages() -> dict[str, str]:
    """Return the path in the site of each file of the repository that is in it."""
    docs = (path for path in (ROOT / "docs").rglob("*") if path.is_file())
    found = {
        path.relative_to(ROOT).as_posix(): path.relative_to(ROOT / "docs").as_posix()
        for path in docs
        if path.suffix not in LEFT_OUT
    }
    for path in (path for pattern in COPIED for path in ROOT.glob(pattern)):
        name = path.relative_to(ROOT).as_posix()
        found[name] = f"repository/{name}"
    return found


def linked(text: str, name: str, site: dict[str, str], repository: str | None) -> str:
    """Return a page with each link to where its file is in the site."""

    def moved(link: re.Match[str]) -> str:
        said, path, anchor = link.groups()
        target = os.path.normpath(os.path.join(os.path.dirname(name), path))
        if target in site:
            path = os.path.relpath(site[target], os.path.dirname(site[name]))
            return f"[{said}]({path}{anchor or ''})"
        if not (ROOT / target).exists():
            return link[0]
        return f"[{said}]({repository}/{target})" if repository else said

    return LINK.sub(moved, text)


def main() -> None:
    """Write all files of the site into a folder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repository", help="where files of the repository are shown")
    args = parser.parse_args()
    shutil.rmtree(args.folder, ignore_errors=True)
    site = pages()
    for name, path in site.items():
        to = args.folder / path
        to.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith(".md"):
            text = (ROOT / name).read_text(encoding="utf-8")
            text = linked(text, name, site, args.repository)
            if path.startswith(("internals/", "changes/", "repository/")):
                text = f"---\nsearch: {{boost: 0.2}}\n---\n\n{text}"  # readers first
            to.write_text(text, encoding="utf-8")
        else:
            shutil.copy(ROOT / name, to)


if __name__ == "__main__":
    main()
