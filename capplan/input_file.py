"""Open files that a user names, plain or gzipped, with one line for what is wrong."""

import gzip
import hashlib
import json
import math
import os
import re
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from shlex import quote
from typing import Any, cast

from capplan.errors import InputError

DECOMPRESSION_ERRORS = (EOFError, gzip.BadGzipFile, zlib.error)
"""Errors of a damaged gzip file."""

MOST_TEXT_BYTES = 256 * 2**20
"""Bytes of a file that is read whole, decompressed; what becomes of them is larger."""

_GZIP_MAGIC = b"\x1f\x8b"
CONTROLS = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)
"""Control characters, and those that turn the direction of a text around."""
_BLOCK_BYTES = 2**20
_MOST_LEVELS = 100
_MOST_YAML_CHARACTERS = 2**23
_TOO_DEEP = "nested too deeply; expected settings or a table"


class BrokenFileError(InputError):
    """A file is cut off or malformed: what stands before may be whole."""


@contextmanager
def opened(path: str | Path) -> Iterator[BufferedReader]:
    """Open the bytes of a file, decompressed when they begin with gzip's magic."""
    try:
        mode = Path(path).stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # read more than once
            raise InputError(f"{path}: is a pipe or a device; expected a file")
        with open(path, "rb") as raw:
            zipped = raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            raw.seek(0)
            if not zipped:
                yield raw
                return
            with gzip.open(raw) as unzipped:
                yield cast(BufferedReader, unzipped)
    except DECOMPRESSION_ERRORS as error:
        raise InputError(
            f"{path}: the gzip data are damaged or cut off ({error}); "
            "expected a whole .gz file"
        ) from None
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder; expected a file") from None
    except (OSError, ValueError) as error:  # a NUL in the path is a ValueError
        if isinstance(error, UnicodeError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot be read ({reason})") from None


def files_of(path: str | Path) -> list[Path]:
    """Return a file alone, of a folder all files below it in order."""
    path = Path(path)
    return sorted(filter(Path.is_file, path.rglob("*"))) if path.is_dir() else [path]


def content_sha256(path: str | Path) -> str:
    """Return the SHA-256 of a file's bytes, decompressed."""
    digest = hashlib.sha256()
    with opened(path) as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def named_sha256(path: str | Path | None) -> str | None:
    """Return the SHA-256 of a file's content, of a folder that of its YAML files."""
    if path is None or not Path(path).is_dir():
        return None if path is None else content_sha256(path)
    digest = hashlib.sha256()
    for file in sorted(Path(path).rglob("*.y*ml")):
        name = os.fsencode(file.relative_to(path))
        digest.update(name + b"\0" + content_sha256(file).encode() + b"\n")
    return digest.hexdigest()


def read_head(path: str | Path, byte_count: int) -> bytes:
    """Return the first decompressed bytes of a file, of a damaged one what it has."""
    head = b""
    with opened(path) as file:
        try:
            while block := file.read1(byte_count - len(head)):
                head += block
        except DECOMPRESSION_ERRORS:
            if not head:
                raise
    return head


def has_more_than(path: str | Path, byte_count: int) -> bool:
    """Return whether a file has more bytes than this, decompressed."""
    with opened(path) as file:
        if not isinstance(file, gzip.GzipFile):
            return Path(path).stat().st_size > byte_count
        while byte_count >= 0:
            block = file.read(_BLOCK_BYTES)
            if not block:
                return False
            byte_count -= len(block)
    return True


def read_text(path: str | Path, most_bytes: int = MOST_TEXT_BYTES) -> str:
    """Return the text of a file, without a byte order mark."""
    blocks, byte_count = [], 0
    with opened(path) as file:
        while block := file.read(_BLOCK_BYTES):
            blocks.append(block)
            byte_count += len(block)
            if byte_count > most_bytes:
                raise InputError(
                    f"{path}: holds more than {most_bytes / 2**20:g} MiB; expected a "
                    "smaller file"
                )
    try:
        return b"".join(blocks).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: not UTF-8 text at byte {error.start}; of Windows: "
            f"{from_windows(path, 'utf8.txt')}"
        ) from None


def from_windows(path: str | Path, to: str) -> str:
    """Return the command that writes a text of Windows in UTF-8."""
    return f"iconv -f WINDOWS-1252 -t UTF-8 {quote(str(path))} > {to}"


def printable(text: str) -> str:
    """Return a text without what a terminal obeys, but for tabs and ends of lines."""
    return CONTROLS.sub("", text)


def parse_json(
    path: str | Path,
    text: str | bytes,
    line: int = 0,
    *,
    finite: bool = False,
    at: int | None = None,
) -> Any:
    """Return the value of a JSON text whose keys stand once in each object.

    ``line`` is its line when it is one of many; ``finite`` refuses NaN, Infinity and
    what overflows; ``at`` asks for the value that begins there, and where it ends.
    """
    where = f"{path}:{line}" if line else f"{path}"
    try:
        text = text if isinstance(text, str) else text.decode("utf-8-sig")
        decoder = _FINITE if finite else _ANY
        return decoder.decode(text) if at is None else decoder.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise BrokenFileError(
            f"{path}:{line or error.lineno}: not JSON: {_problem(error)}"
        ) from None
    except UnicodeDecodeError:
        raise BrokenFileError(f"{where}: is not UTF-8 text") from None
    except RecursionError:
        raise InputError(f"{where}: not JSON: nested too deeply") from None
    except KeyError as twice:
        raise InputError(
            f"{where}: the key {twice.args[0][:60]!r} appears twice in one object; "
            "expected once"
        ) from None
    except ValueError as error:  # a number of thousands of digits
        raise InputError(f"{where}: not JSON: {error}") from None


def _problem(error: json.JSONDecodeError) -> str:
    """Return what is wrong with a JSON text, and where."""
    text = error.doc.rstrip()
    if error.pos >= len(text) or error.msg.startswith("Unterminated"):
        return f"it ends in the middle, at character {len(text):,}"
    return f"{error.msg.removesuffix(' at')} at character {error.pos:,}"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; a KeyError where a key appears twice."""
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        raise KeyError(next(name for name in names if names.count(name) > 1))
    return content


def _finite(text: str) -> float:
    """Return a number of JSON; refuse one that arithmetic would overflow with."""
    found = int(text) if text.lstrip("-").isdecimal() else float(text)
    if not abs(found) < (2**63 if isinstance(found, int) else math.inf):
        raise ValueError(f"{text[:20]} is not a number of JSON, or too large a one")
    return found


_ANY = json.JSONDecoder(object_pairs_hook=_once)
_FINITE = json.JSONDecoder(
    object_pairs_hook=_once,
    parse_int=_finite,
    parse_float=_finite,
    parse_constant=_finite,
)


def parse_yaml(path: str | Path, text: str) -> tuple[Any, Any]:
    """Return the value of a YAML text and its node, which has the lines.

    Each key stands once, and there are no aliases: a few lines of them stand for
    gigabytes.
    """
    import yaml

    kind = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if len(text) > _MOST_YAML_CHARACTERS:
        raise InputError(f"{path}: is too long; expected at most 8 MiB of YAML")
    try:
        _refuse_aliases(path, text, kind)
        loader = kind(text)
        try:
            node = loader.get_single_node()
            if node is not None:
                _refuse_second_keys(path, node)
            return (None if node is None else loader.construct_document(node)), node
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "malformed"
        if "nesting depth" in problem:  # PyYAML from 6.0.4 on has a limit of its own
            raise InputError(f"{path}: {_TOO_DEEP}") from None
        raise InputError(f"{path}{at}: not YAML: {problem}") from None
    except (ValueError, OverflowError) as error:  # such as the 45th of a month
        raise InputError(f"{path}: not YAML: {error}") from None


def _refuse_aliases(path: str | Path, text: str, kind: Any) -> None:
    """Refuse aliases, and a nest so deep that libyaml would exhaust the stack."""
    import yaml

    level = 0
    for event in yaml.parse(text, kind):
        if isinstance(event, yaml.AliasEvent):
            line = getattr(event.start_mark, "line", 0) + 1
            raise InputError(
                f"{path}:{line}: the alias *{event.anchor} is not "
                "read; expected its value written out"
            )
        level += isinstance(event, yaml.CollectionStartEvent)
        level -= isinstance(event, yaml.CollectionEndEvent)
        if level > _MOST_LEVELS:
            raise InputError(f"{path}: {_TOO_DEEP}")


def _refuse_second_keys(path: str | Path, node: Any) -> None:
    """Refuse a mapping in which a key appears twice."""
    import yaml

    if isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if isinstance(key, yaml.ScalarNode):
                if key.value in lines:
                    raise InputError(
                        f"{path}:{line}: {key.value} is already set in line "
                        f"{lines[key.value]}"
                    )
                lines[key.value] = line
            _refuse_second_keys(path, value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _refuse_second_keys(path, value)
