"""Watch which files a call opens, and which code it executes."""

import site
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import capplan

_seen: list[str] | None = None
_allowed: tuple[str, ...] = ()
_KNOWN = (
    *("/proc/", "/sys/", "/dev/null", "/usr/share/zoneinfo", "/etc/localtime"),
    *("/usr/lib", "/lib", "/etc/ld.so", "/etc/mime.types"),
    *(sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib")),
    *(site.getsitepackages()),
    str(Path(capplan.__file__).parent),
    *(str(Path(capplan.__file__).parents[1] / name) for name in ("profiles", "tests")),
    str(Path(capplan.__file__).parents[1] / "workloads"),
)


def _hook(event, arguments):
    if _seen is None:
        return
    if event == "open":
        path = arguments[0]
    elif event == "exec":
        path = getattr(arguments[0], "co_filename", "")
    else:
        return
    if isinstance(path, bytes):
        path = path.decode(errors="replace")
    if not isinstance(path, str | Path) or str(path).startswith("<"):
        return
    text = str(Path(path).absolute())
    if not text.startswith(_allowed):
        _seen.append(text if event == "open" else f"executed: {text}")


sys.addaudithook(_hook)


@contextmanager
def watched(allowed: Sequence[Path] = ()) -> Iterator[list[str]]:
    """Collect the files that are opened, or executed, but those of the installation.

    ``allowed`` are further ones. The list is filled while the block runs.
    """
    global _seen, _allowed
    from capplan.simulator.jit import cache_dir

    _allowed = (*_KNOWN, str(cache_dir()), *map(str, allowed))
    _seen = found = []
    try:
        yield found
    finally:
        _seen = None
