"""LLM, GPU, TP degree and engine, as a table, a load test or a profile's path says."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from capplan.csv_file import read_rows
from capplan.errors import InputError
from capplan.input_file import read_text
from capplan.records import records

_STATED = {
    "llm": "llm model model_id model_name model_names models model_path backend_model",
    "gpu": "gpu system hardware hw gpu_name gpu_type gpu_model",
    "tp": "tp tp_size tensor_parallel tensor_parallel_size decode_tp",
    "precision": "precision quantization weight_dtype weight_precision",
    "speculation": "spec_decoding spec_method speculative speculative_algorithm "
    "speculative_config accept_length spec_decode_acceptance_length",
    "disaggregation": "disagg disaggregation_mode",
    "ep": "ep ep_size expert_parallel_size decode_ep",
    "dp": "dp dp_size data_parallel_size",
    "pp": "pp pp_size pipeline_parallel_size",
    "engine": "engine backend framework",
    "engine_version": "engine_version version",
    "dp attention": "dp_attention enable_dp_attention decode_dp_attention",
}
"""Names under which load generators and their users state what was measured."""
_IDENTITY = ("gpu", "llm", "tp", "engine", "engine_version")
_ASPECT = {name: aspect for aspect, names in _STATED.items() for name in names.split()}
Stated = Mapping[str, tuple[str, str]]
"""Name and value of each aspect of a system, as a file of measurements states them."""
_NAMING = {"name", "items", "method"}
"""Fields that name the object they are in."""
_NOTHING = {"", "none", "null", "false", "auto", "nan", "n/a"}

_PATH = re.compile(r"(?P<gpu>[^/\\]+)[/\\](?P<llm>[^/\\]+)[/\\]tp(?P<tp>\d+)\.yaml$")


def identity_in(path: Path, where: dict[str, str]) -> dict[str, str]:
    """Return gpu, llm, tp and engine of the first row selected; nothing of no table."""
    text = read_text(path)
    names = {name.strip() for name in text.partition("\n")[0].split(",")}
    if not names & _ASPECT.keys():
        return {}
    for _, row in read_rows(path, text=text)[1]:
        if all(row.get(name) == value for name, value in where.items()):
            stated = {aspect: value for aspect, (_, value) in stated_in(row).items()}
            return {name: stated[name] for name in _IDENTITY if name in stated}
    return {}


def stated_in(fields: Mapping[str, Any]) -> Stated:
    """Return name and value of what a record states of the system that was measured.

    Fields of nested objects are paths; an outer one counts before one within. What is
    stated as none, false or auto is left out.

    Examples
    --------
    >>> stated_in({"hw": "h200", "spec_decoding": "none", "info.tp_size": 2})
    {'gpu': ('hw', 'h200'), 'tp': ('tp_size', '2')}
    """
    stated: dict[str, tuple[str, str]] = {}
    for path in sorted(fields, key=lambda path: path.count(".")):
        *_, before, last = ["", *path.replace("-", "_").split(".")]
        name = before if last.lower() in _NAMING else last
        aspect, text = _ASPECT.get(name.lower()), _text(fields[path])
        is_of_tool = last == "version" and before not in ("", "server_info")
        if aspect is not None and text.lower() not in _NOTHING and not is_of_tool:
            stated.setdefault(aspect, (name, text))
    return stated


def stated_in_file(path: Path) -> Stated:
    """Return what a served run in JSON states; nothing of other files."""
    try:
        return stated_in(next(records(path, wrappers=())).fields)
    except (InputError, StopIteration):  # a table, a log or a folder
        return {}


def _text(value: Any) -> str:
    """Return the text of a value, of a list's first, or of what it names."""
    while isinstance(value, list | Mapping):
        if isinstance(value, Mapping):
            value = value.get("items") or value.get("name")
        else:
            value = value[0] if value else None
    text = " ".join(str(value).split())[:100]
    return text.lower() if isinstance(value, bool) else text


def identity_of_place(path: Path) -> dict[str, str]:
    """Return gpu, llm and tp of ``<gpu>/<llm>/tp<k>.yaml``; nothing of other paths.

    Examples
    --------
    >>> identity_of_place(Path("profiles/H100-SXM/Qwen3-8B/tp2.yaml"))
    {'gpu': 'H100-SXM', 'llm': 'Qwen3-8B', 'tp': '2'}
    """
    match = _PATH.search(str(path))
    return match.groupdict() if match else {}
