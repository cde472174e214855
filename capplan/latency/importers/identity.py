"""LLM, GPU, TP degree and engine, read from a table or from a profile's path."""

import re
from pathlib import Path

from capplan.csv_file import read_rows
from capplan.input_file import read_text

GPU_NAMES = {
    "h100_sxm": "H100-SXM",
    "h200_sxm": "H200-SXM",
    "b200_sxm": "B200-SXM",
    "b300_sxm": "B300-SXM",
    "gb200": "GB200",
    "gb300": "GB300",
    "rtx_pro_6000_server": "RTX-PRO-6000",
    "l40s": "L40S",
    "a100_sxm": "A100-80GB-SXM",
    "h100-80gb": "H100-SXM",
    "a100-80gb": "A100-80GB-SXM",
}
"""Names of GPUs in other tools, and in the catalog."""

_COLUMNS = {
    "gpu": ("gpu", "system", "hardware"),
    "llm": ("llm", "model"),
    "tp": ("tp", "tensor_parallel"),
    "engine": ("engine", "backend"),
    "engine_version": ("engine_version", "version"),
}

_PATH = re.compile(r"(?P<gpu>[^/\\]+)[/\\](?P<llm>[^/\\]+)[/\\]tp(?P<tp>\d+)\.yaml$")


def identity_in(path: Path, where: dict[str, str]) -> dict[str, str]:
    """Return gpu, llm, tp and engine of the first row that ``where`` selects.

    A file that is not a table, or has no such columns, gives nothing.
    """
    text = read_text(path)
    names = [name.strip() for name in text.partition("\n")[0].split(",")]
    known = {
        key: column
        for key, columns in _COLUMNS.items()
        for column in columns
        if column in names
    }
    if not known:
        return {}
    for _, row in read_rows(path, text=text)[1]:
        if all(row.get(name) == value for name, value in where.items()):
            values = {key: row[name] for key, name in known.items()}
            if "gpu" in values:
                values["gpu"] = GPU_NAMES.get(values["gpu"], values["gpu"])
            return {key: value for key, value in values.items() if value}
    return {}


def identity_of_place(path: Path) -> dict[str, str]:
    """Return gpu, llm and tp of ``<gpu>/<llm>/tp<k>.yaml``; nothing of other paths.

    Examples
    --------
    >>> identity_of_place(Path("profiles/H100-SXM/Qwen3-8B/tp2.yaml"))
    {'gpu': 'H100-SXM', 'llm': 'Qwen3-8B', 'tp': '2'}
    """
    match = _PATH.search(str(path))
    return match.groupdict() if match else {}
