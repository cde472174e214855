"""Compare the figures of two versions of JSON reports.

    python examples/same_figures.py OLD_FOLDER NEW_FOLDER

Every number, text and truth value of each file of the same name is compared by its
path; keys that were renamed since are in ``RENAMED``. Times of the run itself are left
out. Prints how many values are the same and each that is not; the exit code is 1 where
one differs by more than rounding.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RENAMED: dict[str, str] = {}
"""Old keys and what they are called now."""
_OF_THE_RUN = {"runtime_s", "seal", "digest", "inputs_digest"}
_ROUNDING = 1e-9


def values(document: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path of each value of a document, and the value."""
    if isinstance(document, dict):
        for key, value in document.items():
            if key not in _OF_THE_RUN:
                yield from values(value, f"{path}/{RENAMED.get(key, key)}")
    elif isinstance(document, list):
        for k, value in enumerate(document):
            yield from values(value, f"{path}/{k}")
    else:
        yield path, document


def differences(old: Any, new: Any) -> tuple[int, list[str]]:
    """Return how many values are the same, and a line for each that is not."""
    before, after = dict(values(old)), dict(values(new))
    same, lines = 0, []
    for path in sorted({*before, *after}):
        one, other = before.get(path, "absent"), after.get(path, "absent")
        if one == other or _close(one, other):
            same += 1
        else:
            lines.append(f"{path}: {one!r} -> {other!r}")
    return same, lines


def _close(one: Any, other: Any) -> bool:
    numbers = all(type(value) in (int, float) for value in (one, other))
    return numbers and math.isclose(one, other, rel_tol=_ROUNDING, abs_tol=1e-12)


def main() -> int:
    """Compare the folders; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    given = parser.parse_args()
    wrong = 0
    for path in sorted(given.old.rglob("*.json")):
        name = path.relative_to(given.old)
        old, new = (
            json.loads((folder / name).read_text(encoding="utf-8"))
            for folder in (given.old, given.new)
        )
        same, lines = differences(old, new)
        wrong += len(lines)
        print(f"{name}: {same:,} values the same, {len(lines)} not")
        print("".join(f"  {line}\n" for line in lines[:20]), end="")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
