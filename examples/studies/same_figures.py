"""Compare the figures of two versions of JSON reports.

    python examples/studies/same_figures.py OLD_FOLDER NEW_FOLDER

Every number, text and truth value of each file of the same name is compared by its
path; paths that were renamed since are in ``RENAMED``. Times of the run itself are left
out, and what says that there is nothing (null, an empty text) is the same. Prints how
many values are the same, how many keys are new, and each value that differs by more
than rounding: then the exit code is 1.
"""

import argparse
import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RENAMED = {
    r"^/request/": "/settings/",
    r"/limits/": "/engine/",
    r"/carried/": "/capacity_ratio/",
    r"/sweeps$": "/sweep_count",
    r"^/(candidates/\d+|best\w*)/bound/": r"/\1/bounds/0/",
}
"""Old paths, as patterns, and what they are called now."""
_NOTHING = (None, "", "absent")
_OF_THE_RUN = {"runtime_s", "seal", "digest", "inputs_digest"}
_ROUNDING = 1e-9


def values(document: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path of each value of a document, and the value."""
    if isinstance(document, dict):
        for key, value in document.items():
            if key not in _OF_THE_RUN:
                yield from values(value, f"{path}/{key}")
    elif isinstance(document, list):
        for k, value in enumerate(document):
            yield from values(value, f"{path}/{k}")
    else:
        yield path, document


def differences(old: Any, new: Any) -> tuple[int, list[str]]:
    """Return how many old values are the same, and a line for each that is not."""
    before, after = dict(values(old)), dict(values(new))
    same, lines = 0, []
    for path, one in before.items():
        for pattern, now in RENAMED.items():
            path = re.sub(pattern, now, path)
        other = after.get(path, "absent")
        nothing = one in _NOTHING and other in _NOTHING
        if nothing or one == other or _close(one, other):
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
