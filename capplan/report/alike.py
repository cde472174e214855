"""Warnings that say the same of several things, as one."""

import re
from collections.abc import Iterable

_NUMBER = re.compile(r"\d[\d,.]*")


def merged(warnings: Iterable[str]) -> list[str]:
    """Return warnings with those that differ in their subject or numbers as one.

    The subject is what stands before the first colon. Of texts that differ in numbers
    the first stands for all.

    Examples
    --------
    >>> merged(["A, TP 1: too long", "B, TP 2: too long", "old"])
    ['A, TP 1; B, TP 2: too long', 'old']
    >>> merged(["A: 17 is beyond 8", "B: 19 is beyond 8"])
    ['A: 17 is beyond 8; also B']
    """
    groups: dict[str, list[tuple[str, str]]] = {}
    for text in dict.fromkeys(warnings):
        subject, colon, rest = text.partition(": ")
        if not colon:
            subject, rest = "", text
        key = f"{bool(subject)} {_NUMBER.sub('#', rest)}"
        groups.setdefault(key, []).append((subject, rest))
    found = []
    for rows in groups.values():
        subject, rest = rows[0]
        same = [other for other, text in rows if text == rest]
        alike = [other for other, text in rows if text != rest]
        text = f"{'; '.join(same)}: {rest}" if subject else rest
        also = [name for name in dict.fromkeys(alike) if name not in ("", subject)]
        if also:
            text += f"; also {'; '.join(also)}"
        elif alike:
            text += f"; and {len(alike)} more like this"
        found.append(text)
    return found
