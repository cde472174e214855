"""Compile options of the core; numba's cache directory, named by a source hash.

numba checks only the file a function lives in: edit a scheduler and a cached
core compiled against the old one is still loaded. The directory name is a hash
of every source that is compiled: this package and the shared ``routing.py``.
Caches of other versions that nobody started for two weeks are deleted when a new one
is compiled.
"""

import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import numba
from numba import njit

from capplan.errors import InputError, warn
from capplan.simulator import shipped
from capplan.simulator.linking import for_callers

_HERE = Path(__file__).parent
_CACHE_BYTES = 32 * 2**20
"""Room for the compiled simulator and a policy; one simulation took 14 MiB."""
_UNUSED_S = 14 * 86400
"""Since its last start, after which the cache of another version is deleted."""


def _digest() -> str:
    digest = hashlib.sha256(numba.__version__.encode())
    shared_rules = _HERE.parent / "routing.py"
    for source in (shared_rules, *sorted(_HERE.rglob("*.py"))):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def _is_cold(folder: Path, function: str) -> bool:
    return not any(folder.rglob(f"{function}-*.nbc"))


def _check_room(folder: Path) -> None:
    """Raise an OSError when the folder cannot take what will be compiled."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        if _is_cold(folder, "*" if _SHIPPED else "open_loop.run"):
            # Reserved rather than asked for: a quota is no property of the disk.
            os.posix_fallocate(file.fileno(), 0, _CACHE_BYTES)
            _delete_unused(folder)
    os.utime(folder)  # in use: see _delete_unused


def _delete_unused(folder: Path) -> None:
    """Delete the caches of other versions that nobody started for two weeks."""
    for other in folder.parent.iterdir():
        with suppress(OSError):  # another process may delete it as well
            if other == folder or not re.fullmatch("[0-9a-f]{12}", other.name):
                continue
            if time.time() - other.lstat().st_mtime > _UNUSED_S:
                gone = other.rename(other.with_suffix(f".{os.getpid()}"))
                shutil.rmtree(gone, ignore_errors=True)


def _cache_dir(home: Path, name: str) -> Path:
    """Return a folder that can be written, in ``home`` or else a temporary one."""
    folder = home / "capplan" / name
    try:
        _check_room(folder)
        return folder
    except OSError as error:
        reason = error.strerror
    fallback = Path(tempfile.gettempdir()) / f"capplan-{os.getuid()}" / name
    try:
        _check_room(fallback)
    except OSError as error:
        raise InputError(
            f"cannot write a compile cache, neither {folder} ({reason}) nor {fallback} "
            f"({error.strerror}); set XDG_CACHE_HOME to a folder with room for "
            f"{_CACHE_BYTES // 2**20} MiB"
        ) from None
    warn(
        f"cannot write the compile cache {folder} ({reason}); using {fallback}, "
        "compiled again when it is cleaned"
    )
    return fallback


DIGEST = _digest()
_SHIPPED = shipped.sums(DIGEST)
"""Of each function that the wheel brought compiled."""
CALLED_BY_PYTHON: list[tuple[Any, Any]] = []
"""Functions compiled or loaded in this process, with their signatures."""

_HOME = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
if _SHIPPED:  # else when something is compiled
    with suppress(OSError):
        _delete_unused(_HOME / "capplan" / DIGEST)


@cache
def cache_dir() -> Path:
    """Return the folder of what is compiled here, made when it is first needed."""
    folder = _cache_dir(_HOME, DIGEST)
    numba.config.CACHE_DIR = str(folder)  # type: ignore[attr-defined]
    return folder


def is_cold(file: str = "") -> bool:
    """Return whether the simulator, or the scheduler in a file, is not compiled yet."""
    function = f"{file}.schedule" if file else "open_loop.run"
    if any(name.endswith(f".{function}") for name in _SHIPPED):
        return False
    return _is_cold(cache_dir(), function)


@contextmanager
def _quickly() -> Iterator[None]:
    """Let LLVM optimise little in what is compiled within.

    What is to be inlined says so, and there is next to nothing to make vectors of: with
    all its passes LLVM takes twice as long for code of the same speed and results.
    """
    config: Any = numba.config
    before = config.LOOP_VECTORIZE, config.OPT
    config.LOOP_VECTORIZE, config.OPT = 0, type(config.OPT)(1)
    try:
        yield
    finally:
        config.LOOP_VECTORIZE, config.OPT = before


def compiled(*signature: Any, **options: Any) -> Callable[[Any], Any]:
    """Return ``njit`` for the core, its primitives and its policies.

    With a signature, what Python calls; without one, what only compiled code calls: see
    linking.py.

    The core allocates nothing, so it needs no reference counts, whose atomic
    operations would take 0.7 of its time (measured: 95,000 against 1,200,000
    requests/s with numba 0.68).
    """
    options |= {"nogil": True, "_nrt": False}
    if signature:

        def eager(function: Any) -> Any:
            made = _cached(function, options)
            if made is not function:
                with _quickly():
                    made.compile(*signature)
                made.disable_compile()
                # Asked for at each call that has it as an argument: 50 us otherwise.
                only = next(iter(made.overloads.values()))
                made.get_compile_result = lambda _: only
                CALLED_BY_PYTHON.append((made, *signature))
            return made

        return eager
    options |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}

    def internal(function: Any) -> Any:
        made = _cached(function, options)

        def refuse(*_: object, **__: object) -> None:
            raise TypeError(f"{function.__name__} is called by compiled code only")

        if made is not function:  # else numba is switched off
            compile_for = made.compile

            def compile_now(types: Any) -> Any:
                with _quickly(), for_callers(made.targetctx):
                    return compile_for(types)

            made.compile = compile_now
            made._insert = lambda *_: None  # there is nothing that Python could call
            made._compile_for_args = refuse
        return made

    return internal


def _cached(function: Any, options: dict[str, Any]) -> Any:
    """Return ``njit`` of a function; it is loaded where it was shipped or compiled."""
    made: Any = njit(**options)(function)
    if made is not function:  # else numba is switched off
        made._cache = shipped.Cache(function, _SHIPPED, cache_dir)
    return made


inlined = partial(compiled, forceinline=True)
"""``compiled`` into its callers: 1.4 times as fast as calls of it."""


def from_python(function: Any) -> Any:
    """Return what only compiled code calls, so that tests and examples can call it."""

    @njit(_nrt=False)  # type: ignore[call-overload]
    def call(*values: Any) -> Any:
        return function(*values)

    return call


@cache
def direct(function: Any) -> Any:
    """Return what is compiled for a function's only signature, called at once.

    Its arguments are not checked: a call takes 30 us in place of 170 us with a state.
    """
    overloads = getattr(function, "overloads", None)
    return next(iter(overloads.values())).entry_point if overloads else function


class _Pointer(numba.types.WrapperAddressProtocol):
    def __init__(self, function: Any, signature: Any) -> None:
        compiled_function = function.get_compile_result(signature)
        name = compiled_function.fndesc.llvm_cfunc_wrapper_name
        self._address = compiled_function.library.get_pointer_to_function(name)
        self._signature = signature

    def __wrapper_address__(self) -> int:
        return int(self._address)

    def signature(self) -> Any:
        return self._signature


def pointer(function: Any, signature: Any) -> Any:
    """Return a compiled policy as it is passed often: it is found at once.

    A call of it takes a little longer; finding it otherwise takes 100 us each time.
    """
    if not hasattr(function, "get_compile_result"):
        return function
    return _Pointer(function, signature)
