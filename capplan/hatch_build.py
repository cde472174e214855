"""Build a wheel: compiled code of the simulator, and a README for an index page.

Compiled is what plans of one pool and of two use, for any x86-64 on Linux; elsewhere,
with ``HATCH_BUILD_NO_HOOKS=true`` and where it cannot be, the wheel stays pure.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((?!https?:|#)([^)\s]+)\)")
"""In Markdown to a file of the repository: a picture's mark, text and path."""

_SYSTEM = ("linux", "x86_64")
_COMPILE = """
import pathlib, sys
from capplan.simulator import jit, shipped
from capplan.simulator.of_plans import compiled_of_plans

shipped.ship(pathlib.Path(sys.argv[1]), jit.DIGEST, compiled_of_plans())
"""


class CompiledCode(BuildHookInterface):
    """Hatch's hook of a wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile in a process of its own, for a CPU that is not the host's."""
        if version == "editable" or (sys.platform, platform.machine()) != _SYSTEM:
            return
        build = Path(self.root) / "build"
        folder = build / "compiled"
        shutil.rmtree(folder, ignore_errors=True)
        environment = {
            **os.environ,
            "PYTHONPATH": self.root,
            "XDG_CACHE_HOME": str(build / "cache"),  # pip asks for the wheel twice
            "NUMBA_CPU_NAME": "x86-64",
            "NUMBA_CPU_FEATURES": "",
        }
        command = [sys.executable, "-c", _COMPILE, str(folder)]
        if subprocess.run(command, env=environment).returncode:
            self.app.display_warning("the simulator was not compiled: see above")
            return
        for path in folder.iterdir():
            target = f"capplan/simulator/_compiled/{path.name}"
            build_data["force_include"][str(path)] = target
        python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
        build_data["pure_python"] = False
        build_data["tag"] = f"{python}-{python}{sys.abiflags}-manylinux_2_17_x86_64"


def for_index(text: str, repository: str | None, tag: str) -> str:
    """Return a README whose links lead to a tag of the repository.

    Without one they are plain text, and pictures are left out.
    """

    def linked(link: re.Match[str]) -> str:
        mark, said, path = link.groups()
        if not repository:
            return "" if mark else said
        kind = "raw" if mark else "blob"
        return f"{mark}[{said}]({repository.rstrip('/')}/{kind}/{tag}/{path})"

    return _LINK.sub(linked, text)


class IndexPage(MetadataHookInterface):
    """Hatch's hook of the metadata: ``project.urls.Repository`` is where links lead."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the long description."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        repository = metadata.get("urls", {}).get("Repository")
        text = for_index(text, repository, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
