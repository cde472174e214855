"""A user's own scheduler: one Python file, compiled and cached by its content.

It is named by its path, ``./mine.py`` or ``./mine.py:key=value``: before the colon
stands a "/" or the ending ``.py``. What is planned with it names the content too, as
``./mine.py@sha256-`` and 32 digits, and another content is refused under that name.
"""

import hashlib
import importlib.util
import re
import sys
import traceback
from functools import cache
from pathlib import Path
from types import ModuleType

from capplan.errors import InputError
from capplan.files import new_file

_CONTENT = "@sha256-"
_DIGITS = 32
"""Of the content's SHA-256, in the name: nobody finds another content with them."""
_LONGEST_REASON = 240
"""Characters of a compiler's message that are shown."""


def file_of(given: str) -> str:
    """Return the path of a scheduler, its settings left out; empty where it is none."""
    path = given.partition(":")[0].partition(_CONTENT)[0]
    return path if "/" in path or path.endswith(".py") else ""


def named_by_content(name: str) -> str:
    """Return the name of a file with the digits of its content."""
    path = file_of(name)
    digits = hashlib.sha256(_content(path)).hexdigest()[:_DIGITS]
    named = f"{path}{_CONTENT}{digits}"
    if name not in (path, named):
        raise InputError(
            f"scheduler {name}: the content of {path} has changed, to {_CONTENT[1:]}"
            f"{digits}; expected the file as it was"
        )
    return named


def names_content(given: str) -> bool:
    """Return whether a scheduler's name has all digits of its content."""
    digits = given.partition(":")[0].partition(_CONTENT)[2]
    return len(digits) == _DIGITS


def with_content(name: str) -> str:
    """Return the name with the digits of the content, unread where it has them."""
    return name if _CONTENT in name else named_by_content(name)


def copy_of(name: str) -> str:
    """Return the name, without ending, of the copy of a file that is compiled."""
    return f"own_scheduler_{with_content(name).partition(_CONTENT)[2]}"


def load(name: str) -> ModuleType:
    """Return the module of a file, with ``schedule``, ``RULES`` and ``refused``."""
    return _loaded(with_content(name))


@cache
def _loaded(name: str) -> ModuleType:
    """Import the copy of a file in the compile cache, where numba finds it again."""
    from capplan.simulator.jit import cache_dir

    named_by_content(name)
    path = file_of(name)
    content = _content(path)
    copy = cache_dir() / "own" / f"{copy_of(name)}.py"
    if not copy.exists() or copy.read_bytes() != content:
        copy.parent.mkdir(exist_ok=True)
        with new_file(copy) as stream:
            stream.write(_text(content, path))
    spec = importlib.util.spec_from_file_location(copy.stem, copy)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[copy.stem] = module  # numba's cache imports it by name
    try:
        spec.loader.exec_module(module)
        _check(module, path)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        line, reason = _explained(error, copy)
        raise InputError(f"{path}:{line}: {reason}") from None
    return module


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(
            f"scheduler {path}: {error.strerror or error}; expected a Python file "
            "with schedule and RULES"
        ) from None


def _text(content: bytes, path: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text at byte {error.start}") from None


def _check(module: ModuleType, path: str) -> None:
    """Refuse a file without what a scheduler has; let it refuse no request."""
    import numba

    from capplan.simulator.schedulers import Knob, Rules
    from capplan.simulator.state import OWN_SETTINGS, SCHEDULE

    schedule = getattr(module, "schedule", None)
    if schedule is None:
        raise InputError(f"{path}: no schedule; expected schedule(state, r)")
    interpreted = numba.config.DISABLE_JIT  # type: ignore[attr-defined]
    if not interpreted and SCHEDULE not in getattr(schedule, "nopython_signatures", ()):
        raise InputError(
            f"{path}: schedule is not compiled; expected @compiled(SCHEDULE) above it"
        )
    rules = getattr(module, "RULES", None)
    if not isinstance(rules, Rules):
        found = "no RULES" if rules is None else f"RULES is {type(rules).__name__}"
        raise InputError(f"{path}: {found}; expected RULES = Rules(...)")
    if len(rules.settings) > OWN_SETTINGS:
        raise InputError(
            f"{path}: RULES has {len(rules.settings)} settings; expected at most "
            f"{OWN_SETTINGS}"
        )
    for key, knob in rules.settings.items():
        if not isinstance(knob, Knob):
            raise InputError(f"{path}: setting {key} is {knob!r}; expected a Knob")
        if knob.parsed(knob.written(knob.default)) != knob.default:
            raise InputError(
                f"{path}: the default of {key} is {knob.default}; expected "
                f"{knob.expected}"
            )


def _explained(error: BaseException, copy: Path) -> tuple[int, str]:
    """Return the line of the user's file at which an error arose, and the reason."""
    text = str(error)
    if isinstance(error, SyntaxError) and error.filename == str(copy):
        return error.lineno or 1, f"{type(error).__name__}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame.lineno for frame in frames if frame.filename == str(copy)]
    where = f"{text} {getattr(error, 'loc', None)}"  # innermost call first
    found = re.search(rf'{re.escape(copy.name)}(?:", line | \()(\d+)', where)
    line = int(found[1]) if found else (own or [1])[-1] or 1
    field = error.args[0] if isinstance(error, KeyError) and error.args else None
    if isinstance(field, str):  # numba says no more of a field that a record lacks
        for number, code in enumerate(copy.read_text("utf-8").splitlines(), 1):
            if re.search(rf"\.{re.escape(field)}\b", code):
                return number, f"{field} is not a field of the record"
    return line, _reason(type(error).__name__, text)


def _reason(kind: str, text: str) -> str:
    """Return the first line of a message that says something, its types left out."""
    text = re.sub(r"Record\([^()]*\)", "Record", text)
    text = re.sub(r"State\((?:[^()]|\([^()]*\))*\)", "State", text)
    lines = [line.strip(" -") for line in text.splitlines()]
    told = [
        line
        for line in lines
        if line and not line.startswith(("Failed in", "Resolution failure"))
    ]
    reason = told[0].partition(" found for signature")[0] if told else "it failed"
    if reason.startswith("NRT required"):
        reason = "a list, dict, array or text is made, which compiled policies cannot"
    if len(reason) > _LONGEST_REASON:
        reason = f"{reason[:_LONGEST_REASON]}…"
    return f"{kind}: {reason}"
