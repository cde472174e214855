"""GPUs of one's own: a YAML file of what their data sheets say."""

import math
import re
from pathlib import Path
from typing import Any

from capplan.errors import InputError
from capplan.fleet.catalog import OwnGpu, architectures, use_own
from capplan.fleet.gpu import Gpu
from capplan.input_file import parse_yaml, read_text
from capplan.setting_values import PathText, check_keys
from capplan.settings import SettingError, Settings, setting
from capplan.units import number_in

_LINK = "nvlink_bytes_per_s_per_direction"
_NUMBERS: dict[str, tuple[str, float, float, float]] = {
    "memory_gib": ("memory_bytes", 2**30, 1, 4096),
    "bandwidth_gb_per_s": ("bandwidth_bytes_per_s", 1e9, 20, 1e5),
    "fp16_tflops": ("fp16_flops", 1e12, 1, 1e6),
    "bf16_tflops": ("bf16_flops", 1e12, 1, 1e6),
    "fp8_tflops": ("fp8_flops", 1e12, 1, 1e6),
    "fp4_tflops": ("fp4_flops", 1e12, 1, 1e6),
    "nvlink_gb_per_s": (_LINK, 1e9, 0, 1e5),
    "network_gb_per_s": ("network_bytes_per_s_per_direction", 1e9, 0.01, 1e5),
    "gpus_per_node": ("max_gpus_per_node", 1, 1, 1024),
    "tdp_w": ("tdp_w", 1, 1, 1e5),
    "usd_per_gpu_h": ("usd_per_gpu_h", 1, 1e-3, 1e3),
}
"""Field of :class:`Gpu` by key, the key's unit in the field's, least and most."""
_TEXTS = ("name", "architecture", "source", "note")
_NAME = re.compile(r"\w[-\w.]{0,59}", re.ASCII)
_NEEDED = ("name", "memory_gib", "bandwidth_gb_per_s", "gpus_per_node", "tdp_w")


class GpuFileSettings(Settings):
    """GPUs that no catalog has."""

    gpu_file: PathText | None = setting(
        None,
        "LLM, GPUs and prices",
        "FILE",
        "GPUs of your own, to be named like those of the catalog: YAML of memory, "
        "bandwidth, FLOP/s, links, price (docs/reference/inputs.md).",
    )

    def __init__(self, **values: Any) -> None:
        """Know the GPUs of the file, and none of another one."""
        super().__init__(**values)
        try:
            use_own(read_gpus(Path(self.gpu_file)) if self.gpu_file else ())
        except InputError as error:
            raise SettingError("gpu_file", str(error)) from None


def read_gpus(path: Path) -> list[OwnGpu]:
    """Return the GPUs of a file, which has one or a list of them."""
    content, _ = parse_yaml(path, read_text(path))
    found = content if isinstance(content, list) and content else [content]
    return [_own(path, number, entry) for number, entry in enumerate(found, 1)]


def _own(path: Path, number: int, entry: Any) -> OwnGpu:
    if not isinstance(entry, dict):
        raise InputError(f"{path}: item {number} is no mapping; expected name: …")
    place = f"{path}: {str(entry.get('name', f'item {number}'))[:60]}"
    check_keys(map(str, entry), (*_TEXTS, *_NUMBERS), place)
    wrong = [f"{key} is missing" for key in _NEEDED if entry.get(key) is None]
    if "name" in entry and not _NAME.fullmatch(str(entry["name"])):
        wrong.append("name has other signs than letters, digits, - _ and .")
    if entry.get("bf16_tflops") is None and entry.get("fp16_tflops") is None:
        wrong.append("bf16_tflops is missing (without BF16: fp16_tflops)")
    family = str(entry.get("architecture") or "")
    if family not in ("", *architectures()):
        known = ", ".join(architectures())
        wrong.append(f"architecture is {family[:40]!r}; expected one of {known}")
    fields = _numbers(entry, wrong)
    if wrong:
        raise InputError(f"{place}: {'; '.join(wrong)}")
    price = fields.pop("usd_per_gpu_h")
    fields[_LINK] = fields[_LINK] or 0.0
    fields["fp16_flops"] = fields["fp16_flops"] or fields["bf16_flops"]
    fields |= {key: str(entry.get(key) or "") for key in _TEXTS}
    fields["source"] = fields["source"] or str(path)
    return OwnGpu(Gpu(**fields, confidence="medium"), price)


def _numbers(entry: dict[Any, Any], wrong: list[str]) -> dict[str, Any]:
    """Return the fields of a GPU that are numbers; what is wrong goes to ``wrong``."""
    fields: dict[str, Any] = {field: None for field, *_ in _NUMBERS.values()}
    for key, (field, unit, least, most) in _NUMBERS.items():
        if (value := entry.get(key)) is None:
            continue
        is_count = key == "gpus_per_node"
        number = math.nan if isinstance(value, bool) else number_in(value)
        if not least <= number <= most or (is_count and number % 1):
            kind = "a whole number" if is_count else "a number"
            told = f"expected {kind} from {least:g} to {most:,.0f}"
            wrong.append(f"{key} is {str(value)[:40]!r}; {told}")
        else:
            whole = is_count or key == "memory_gib"
            fields[field] = int(number * unit) if whole else number * unit
    return fields
