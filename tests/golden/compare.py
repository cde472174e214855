"""Compare the schedule of a vLLM release with capplan's, on every recorded scenario.

Takes about a minute, no GPU and no model::

    python tests/golden/compare.py VLLM_PYTHON [RELEASE]

VLLM_PYTHON is a Python that has some vLLM, CPU builds included; RELEASE a version,
whose wheel pip downloads, or a folder with an unpacked one. Without it, the installed
vLLM is compared. Prints a line per scenario; exits with 1 if one differs.
"""

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from recorded import IMAGE_COLUMNS, first_difference, read, tags

HERE = Path(__file__).parent
DATA = HERE / "data"
PIP = ["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]


def case(tag: str) -> dict:
    """Return what ``record.py`` needs to record a scenario again."""
    recording = read(DATA, tag)
    args = json.loads((DATA / f"meta_{tag}.json").read_text())["args"]
    requests, images, adapters = {}, {}, {}
    for k, row in enumerate(recording.requests):
        index = int(row["id"][1:])
        before = int(row.get("turn_before", -1))
        requests[index] = [
            float(row["think_s" if before >= 0 else "arrival_s"]),
            int(row["prompt_len"]),
            int(row["output_len"]),
            int(recording.trace.prefix_group[k]),
            int(recording.trace.prefix_tokens[k]),
            before,
            int(recording.trace.priority[k]),
        ]
        if recording.engine.images is not None:
            images[index] = [int(row[name]) for name in IMAGE_COLUMNS]
        if recording.engine.adapters is not None:
            adapters[index] = int(row["adapter"])
    for name, rows in (
        ("requests", requests),
        ("images", images),
        ("adapters", adapters),
    ):
        args[name] = [rows[k] for k in sorted(rows)]
    return args


def unpacked(python: str, release: str, folder: Path) -> Path:
    """Return a folder with a release's Python files, downloaded unless it is one."""
    if Path(release).is_dir():
        return Path(release).resolve()
    subprocess.run([python, *PIP, "--dest", folder, f"vllm=={release}"], check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        kept = [name for name in file.namelist() if not name.endswith(".so")]
        file.extractall(folder / "wheel", kept)
    return folder / "wheel"


def record(
    python: str, names: list[str], out: Path, release: Path | None = None
) -> None:
    """Record scenarios again, with vLLM from ``release`` if that is given."""
    run(python, "record.py", {name: case(name) for name in names}, out, release)


def run(
    python: str,
    script: str,
    cases: dict[str, dict[str, Any]],
    out: Path,
    release: Path | None = None,
) -> None:
    """Record cases with a script."""
    paths = []
    for tag, given in cases.items():
        paths.append(out / f"{tag}.json")
        paths[-1].write_text(json.dumps(given))
    path = {} if release is None else {"PYTHONPATH": str(release)}
    done = subprocess.run(
        [python, HERE / script, out, *paths],
        env={**os.environ, **path},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"vLLM does not record:\n{done.stderr[-3000:]}")


def main() -> None:
    """Compare all scenarios and print what was found."""
    python, *release = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        vllm = unpacked(python, release[0], out) if release else None
        record(python, tags(DATA), out, vllm)
        version = json.loads(next(out.glob("meta_*")).read_text())["vllm"]
        differing = 0
        for tag in tags(DATA):
            found = first_difference(read(out, tag))
            differing += found != ""
            print(f"vLLM {version}  {tag:<20}  {found or 'same'}")
    sys.exit(differing > 0)


if __name__ == "__main__":
    main()
