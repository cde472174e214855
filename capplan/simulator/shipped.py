"""Compiled code that a wheel brings: loaded first, then the user's cache is asked.

``index.json`` says what it was compiled from, with and for, and the SHA-256 of each
file. Where any of that differs it is as if nothing had been brought: numba looks in the
user's cache, and compiles. Nothing is written there once it is installed.
"""

import hashlib
import io
import json
import pickle
import tempfile
import zipfile
from collections.abc import Callable
from functools import cached_property
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import numba
from llvmlite import binding, ir
from numba.core.caching import FunctionCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

FOLDER = Path(__file__).parent / "_compiled"
_INDEX, _CPU = "index.json", "cpu.txt"


def stamp(digest: str) -> dict[str, str]:
    """Return what compiled code depends on, with a digest of its sources."""
    return {
        "sources": digest,
        "numba": numba.__version__,
        "python": EXTENSION_SUFFIXES[0],  # and its system, machine and C library
    }


def sums(digest: str) -> dict[str, str]:
    """Return the SHA-256 of each file that can be loaded, by the function's name."""
    try:
        index = json.loads((FOLDER / _INDEX).read_bytes())
        return dict(index["sha256"]) if index["stamp"] == stamp(digest) else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _name(function: Any) -> str:
    return f"{function.__module__}.{function.__qualname__}"


class Cache:
    """numba's cache of a function, made when what was shipped is not enough."""

    def __init__(
        self, function: Any, sums: dict[str, str], make_folder: Callable[[], object]
    ) -> None:
        self._function, self._make_folder = function, make_folder
        self._sha256 = sums.get(_name(function))

    @cached_property
    def _of_user(self) -> FunctionCache:
        self._make_folder()
        return FunctionCache(self._function)

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Return what numba keeps of a compiled function; None: compile it."""
        if self._sha256 and (found := self._load(target)):
            return found
        # Not its load_overload: that prepares to compile, imports SciPy, takes 0.3 s.
        user = self._of_user
        return getattr(user, "_load_overload", user.load_overload)(signature, target)

    def _load(self, target: Any) -> Any:
        try:
            content = (FOLDER / f"{_name(self._function)}.bin").read_bytes()
            if hashlib.sha256(content).hexdigest() != self._sha256:
                return None
            symbols, reduced = pickle.loads(content)
            # Asked before an address is looked up: without them it would be 0.
            target.codegen()._engine._defined_symbols.update(symbols)
            return CompileResult._rebuild(target, *reduced)
        except Exception:
            return None  # whatever is wrong with it, it can be compiled

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of_user, name)


def has_some() -> bool:
    """Return whether compiled code was brought, for whatever sources."""
    return (FOLDER / _INDEX).is_file()


def packed(digest: str, functions: list[tuple[Any, Any]]) -> bytes:
    """Return what Python calls as a file for processes on CPUs like this one."""
    content = io.BytesIO()
    with tempfile.TemporaryDirectory() as name, zipfile.ZipFile(content, "w") as file:
        folder = Path(name) / "compiled"
        ship(folder, digest, functions)
        file.writestr(_CPU, _cpu())
        for path in folder.iterdir():
            file.write(path, path.name)
    return content.getvalue()


def unpack(content: bytes, folder: Path) -> None:
    """Have compiled code of :func:`packed` loaded from a folder.

    Before the simulator is imported. Code for another CPU is left out.
    """
    global FOLDER
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        if file.read(_CPU).decode() == _cpu():
            file.extractall(folder)
            FOLDER = folder


def _cpu() -> str:
    """Return what code that is compiled here may use of a CPU."""
    config: Any = numba.config
    name = config.CPU_NAME or binding.get_host_cpu_name()
    return f"{name} {binding.get_host_cpu_features().flatten()}"


def ship(folder: Path, digest: str, functions: list[tuple[Any, Any]]) -> None:
    """Write what Python calls, with its signature, for a wheel to bring."""
    folder.mkdir(parents=True)
    sha256 = {}
    for function, signature in functions:
        cache = function._cache._of_user
        key = cache._index_key(signature, function.targetctx.codegen())
        if (kept := cache._cache_file.load(key)) is None:  # a wheel brought it
            continue
        ((name, kind, (code, bitcode)), *rest) = kept
        module = binding.parse_bitcode(bitcode)
        defined = (*module.functions, *module.global_variables)
        symbols = [each.name for each in defined if not each.is_declaration]
        # Bitcode is linked into callers, which Python's have none of: two thirds less.
        empty = ir.Module(name)
        empty.triple = binding.get_process_triple()
        bitcode = binding.parse_assembly(str(empty)).as_bitcode()
        content = dumps((symbols, ((name, kind, (code, bitcode)), *rest)))
        name = _name(function.py_func)
        (folder / f"{name}.bin").write_bytes(content)
        sha256[name] = hashlib.sha256(content).hexdigest()
    index = {"stamp": stamp(digest), "sha256": sha256}
    (folder / _INDEX).write_text(json.dumps(index, indent=1))
