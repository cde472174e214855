"""Write files that are complete or absent: a temporary one, then a rename."""

import gzip
import io
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, TextIO

from capplan.errors import InputError


def check_folder(folder: str | Path) -> None:
    """Refuse a folder that cannot be written, before the work is done."""
    folder = parent = Path(folder)
    if "\0" in str(folder):
        raise InputError(f"{str(folder)!r} holds a NUL; expected the path of a folder")
    while not parent.exists() and parent != parent.parent:
        parent = parent.parent
    if not parent.is_dir():
        raise InputError(f"{folder}: {parent} is a file; expected a folder")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"{folder}: {parent} may not be written")


@contextmanager
def new_file(path: str | Path) -> Iterator[TextIO]:
    """Open a text file that takes its name when the block ends without an error.

    A path that ends in ``.gz`` is compressed, the same bytes for the same text.
    """
    path = Path(path)
    temporary: Path | None = None
    try:
        if path.is_dir():
            raise IsADirectoryError(0, "is a folder")
        _remove_orphans(path.parent)
        handle, name = tempfile.mkstemp(
            prefix=f".{path.name}.", suffix=_suffix(os.getpid()), dir=path.parent
        )
        temporary = Path(name)
        with open(handle, "wb") as raw, _text(raw, path.suffix) as stream:
            yield stream
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp's 0600 is not for sharing
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"{path}: cannot be written: {reason}") from None
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink()


def _suffix(process: int | str) -> str:
    """Return the end of a temporary file's name: who writes it, on which machine."""
    return f".{process}.{os.uname().nodename}.capplan-tmp"


def _remove_orphans(folder: Path) -> None:
    """Remove the temporary files of processes of this machine that were killed."""
    end = _suffix("")[1:]
    with suppress(OSError):
        for path in folder.iterdir():
            process = path.name.removesuffix(end).rpartition(".")[2]
            ours = path.name.startswith(".") and path.name.endswith(end)
            if ours and process.isdecimal() and not _runs(int(process)):
                path.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # of another user
        return True
    return True


@contextmanager
def _text(raw: io.BufferedWriter, suffix: str) -> Iterator[TextIO]:
    file: Any = nullcontext(raw)
    if suffix == ".gz":
        file = gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0)
    with file as binary, io.TextIOWrapper(binary, "utf-8", newline="") as stream:
        yield stream


def write_texts(
    texts: Mapping[str, str | bytes], folder: str | Path
) -> tuple[Path, ...]:
    """Write every text under its name in a folder, or none of them; return where.

    Bytes are written as they are, under a name that does not end in ``.gz``.
    """
    folder = Path(folder)
    check_folder(folder)
    existed = folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            for name, text in texts.items():
                stream = stack.enter_context(new_file(folder / name))
                if isinstance(text, bytes):
                    stream.buffer.write(text)
                else:
                    stream.write(text)
                stream.flush()
    except (OSError, InputError) as error:
        if not existed:
            with suppress(OSError):
                folder.rmdir()
        if isinstance(error, InputError):
            raise
        reason = error.strerror or str(error)
        raise InputError(f"{folder}: cannot be written: {reason}") from None
    return tuple(folder / name for name in texts)
