"""Stream the items of a large JSON array; an error names the byte."""

from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import ijson

from capplan.input_file import DECOMPRESSION_ERRORS, BrokenFileError, opened

_BUFFER_BYTES = 1 << 16
_MOST_OPENED = 1 << 13
"""Brackets that a buffer may open without closing them, those in texts included.

ijson keeps the path to each level of a nest, so memory grows with its square.
"""


_MOST_TEXT_BYTES = 2**26
"""Of a text or number: ijson holds each whole."""


def iterate_items(path: str | Path) -> Iterator[Any]:
    """Yield the items of the array in a file until it is broken, in constant memory."""
    with opened(path) as file:
        file.seek(len(BOM_UTF8) if file.read(len(BOM_UTF8)) == BOM_UTF8 else 0)
        counted = _Counted(file)
        try:
            yield from ijson.items(counted, "item", buf_size=_BUFFER_BYTES)
        except ijson.JSONError as error:
            reason = str(error).splitlines()[0]
            raise BrokenFileError(f"byte {counted.bytes_read:,}: {reason}") from None


class _Counted:
    """A file that counts the bytes read and ends where its gzip data are damaged."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.bytes_read = 0
        self._text_bytes = 0

    def read(self, byte_count: int) -> bytes:
        if byte_count == 0:  # ijson probes the type of the file so
            return b""
        try:
            data = self._file.read(byte_count)
        except DECOMPRESSION_ERRORS:
            data = b""
        opened_brackets = data.count(b"[") + data.count(b"{")
        if opened_brackets - data.count(b"]") - data.count(b"}") > _MOST_OPENED:
            raise BrokenFileError(f"byte {self.bytes_read:,}: nested too deeply")
        ends = data.rfind(b'"')
        self._text_bytes = len(data) - ends - 1 + (self._text_bytes if ends < 0 else 0)
        if self._text_bytes > _MOST_TEXT_BYTES:
            raise BrokenFileError(f"byte {self.bytes_read:,}: a text without end")
        self.bytes_read += len(data)
        return data
