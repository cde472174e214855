"""Open a plain or gzipped file, with an error that says why it cannot be read."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from capplan.errors import InputError

_GZIP_MAGIC = b"\x1f\x8b"

DECOMPRESSION_ERRORS = (EOFError, gzip.BadGzipFile, zlib.error)
"""Errors of a damaged gzip file."""


@contextmanager
def opened(path: str | Path) -> Iterator[IO[bytes]]:
    """Open the bytes of a file, decompressed when they begin with gzip's magic."""
    try:
        with open(path, "rb") as raw:
            zipped = raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            raw.seek(0)
            if not zipped:
                yield raw
                return
            with gzip.open(raw) as unzipped:
                yield cast(IO[bytes], unzipped)
    except DECOMPRESSION_ERRORS as error:
        raise InputError(
            f"{path}: the gzip data are damaged or cut off ({error}); "
            "expected a whole .gz file"
        ) from None
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; expected a trace") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder; expected a file") from None
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror or error})"
        ) from None


def read_head(path: str | Path, byte_count: int) -> bytes:
    """Return the first decompressed bytes of a file."""
    with opened(path) as file:
        return file.read(byte_count)
