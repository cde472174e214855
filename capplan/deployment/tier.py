"""Host memory that keeps KV of prompts, beside the GPUs of a replica.

vLLM's ``--kv-offloading-size`` (``OffloadingConnector``, v1/kv_offload). Chunks of some
blocks are copied there once they are computed, and back where the GPU has lost them.
"""

from dataclasses import dataclass, replace

from capplan.deployment.policy import Knob
from capplan.errors import InputError, check_at_least, nearest
from capplan.units import parse_gb_per_s

_GIB = 2**30
_PAGE_BYTES = 4096
NATIVE = "vllm-native"
PRESETS: dict[str, dict[str, float]] = {NATIVE: {}, "lmcache": {"blocks_per_chunk": 16}}
"""Settings of each that differ; LMCache's chunks have 256 tokens (v1/config.py)."""
AUTO = "auto"
"""The size of a tier that a plan finds."""
VERSIONS = ("0.32", "0.33")
"""Releases of vLLM whose rules are known; the newest is meant where none is named."""
LATENCY_S = 50e-6
"""Of a copy, until its first block moves (assumed). [s]"""
LINK_GB_PER_S = 24.0
"""Each way between a GPU and its host, as PCIe 4.0 x16 carries (assumed). [GB/s]"""
_DURATION = Knob(0.0, 0, 1e3, is_duration=True)
_KNOBS = {
    "chunks": Knob(0, 0),
    "gib": Knob(0.0, 0, 1e6),
    "blocks_per_chunk": Knob(1, 1, 4096),
    "answers": Knob(0, 0, 1),
    "latency": _DURATION,
    "load_block": _DURATION,
    "store_block": _DURATION,
}
_LINKS = {"read": "load_block", "write": "store_block"}


@dataclass(frozen=True)
class Tier:
    """What is kept there, and how fast it moves; of one replica, all its GPUs."""

    version: str = VERSIONS[-1]  # of vLLM, whose rules it has
    chunks: int = 0  # 0 with ``gib``: as many as that holds
    gib: float = 0.0  # of all GPUs of the replica together; 0: not given [GiB]
    blocks_per_chunk: int = 1
    answers: bool = False  # kept too, not only prompts
    latency_s: float = LATENCY_S  # of each copy [s]
    load_block_s: float = 0.0  # a block of all GPUs at once, from the host [s]
    store_block_s: float = 0.0  # and to it [s]
    read_gb_per_s: float = 0.0  # of each GPU, from the host; 0: ``load_block_s`` [GB/s]
    write_gb_per_s: float = 0.0  # and to it [GB/s]
    is_assumed: bool = False  # its links
    copies: int = 1  # GPUs of the replica that hold different KV
    preset: str = NATIVE  # others are estimates by its rules

    def __post_init__(self) -> None:
        if self.version not in VERSIONS:
            raise InputError(
                f"tier {NATIVE}@{self.version}: rules are known of "
                f"{NATIVE}@{' and @'.join(VERSIONS)}"
            )
        check_at_least(0, self, "chunks", "gib", "latency_s")
        check_at_least(0, self, "load_block_s", "store_block_s")
        check_at_least(0, self, "read_gb_per_s", "write_gb_per_s")
        check_at_least(1, self, "blocks_per_chunk")

    @property
    def name(self) -> str:
        """Whose rules it has: ``vllm-native@0.33``, or of an estimate the preset."""
        return f"{NATIVE}@{self.version}" if self.is_native else self.preset

    @property
    def is_native(self) -> bool:
        """Whether it is vLLM's own offloading, not an estimate by its rules."""
        return self.preset == NATIVE

    @property
    def is_sized(self) -> bool:
        """Whether its chunks and the times of their copies are known."""
        return not (self.gib and not self.chunks) and not self.read_gb_per_s

    @property
    def by_request(self) -> bool:
        """Whether chunks are used when their request was first: since vLLM 0.33."""
        return self.version != "0.32"

    def held_gib(self, block_bytes: int) -> float:
        """Return the memory that it takes, of blocks of so many bytes a GPU. [GiB]"""
        blocks = self.chunks * self.blocks_per_chunk
        return self.gib or blocks * block_bytes * self.copies / _GIB

    def sized(self, block_bytes: int, copies: int) -> "Tier":
        """Return it with its chunks and times, for KV blocks of so many bytes a GPU.

        ``copies``: GPUs of the replica that hold different KV.
        """
        if self.is_sized:
            return replace(self, copies=copies)
        if not block_bytes:
            raise InputError(
                "the bytes of a KV block are not known, which a tier in GiB needs; "
                "name the LLM and the GPU, or give chunks, load_block and store_block"
            )
        chunk_bytes = block_bytes * copies * self.blocks_per_chunk
        chunk_bytes = -(-chunk_bytes // _PAGE_BYTES) * _PAGE_BYTES
        return replace(
            self,
            chunks=int(self.gib * _GIB) // chunk_bytes if self.gib else self.chunks,
            load_block_s=block_bytes / (self.read_gb_per_s * 1e9),
            store_block_s=block_bytes / (self.write_gb_per_s * 1e9),
            read_gb_per_s=0.0,
            write_gb_per_s=0.0,
            copies=copies,
        )


def parse_size(text: str) -> str:
    """Return the size of a tier as settings hold it: GiB, a share as 50%, or auto.

    Examples
    --------
    >>> parse_size("512.0"), parse_size("50 %"), parse_size("auto")
    ('512', '50%', 'auto')
    """
    if text.strip() == AUTO:
        return AUTO
    share = text.strip().endswith("%")
    try:
        size = float(text.strip().removesuffix("%"))
    except ValueError:
        size = -1.0
    if not 0 <= size <= (100 if share else 1e6):
        raise InputError(
            f"kv_offloading_size is {text!r}; expected GiB, a share of the host memory "
            "that is free (50%), or auto"
        )
    return f"{size:.10g}" + "%" * share


def parse_tier(given: str) -> Tier:
    """Return the tier of ``vllm-native@VERSION:setting=value,...``, or of a preset.

    Examples
    --------
    >>> tier = parse_tier("vllm-native@0.32:gib=64,read=50GB/s,write=40GB/s,answers=1")
    >>> tier.version, tier.gib, tier.read_gb_per_s, tier.answers
    ('0.32', 64.0, 50.0, True)
    """
    name, _, rest = given.partition(":")
    preset, _, version = name.partition("@")
    if preset not in PRESETS:
        raise InputError(
            f"tier {given!r}: {preset!r} is not known{nearest(preset, PRESETS)}; "
            f"expected {' or '.join(PRESETS)}"
        )
    if version and preset != NATIVE:
        raise InputError(f"tier {given!r}: {preset} has no @{version}; expected none")
    settings = dict(_setting(given, part) for part in rest.split(",") if part)
    parts = PRESETS[preset] | settings
    if ("chunks" in parts) == ("gib" in parts):
        raise InputError(f"tier {given!r}: expected chunks or gib")
    for link, block in _LINKS.items():
        if link in parts and block in parts:
            raise InputError(f"tier {given!r}: expected {link} or {block}")
    by_block = {"load_block", "store_block"} <= parts.keys()
    if not by_block and ("load_block" in parts or "store_block" in parts):
        raise InputError(f"tier {given!r}: expected load_block and store_block")
    assumed = {} if by_block else {"read": LINK_GB_PER_S, "write": LINK_GB_PER_S}
    links = {**assumed, **{key: parts[key] for key in _LINKS if key in parts}}
    return Tier(
        version=version or VERSIONS[-1],
        chunks=int(parts.get("chunks", 0)),
        gib=parts.get("gib", 0.0),
        blocks_per_chunk=int(parts.get("blocks_per_chunk", 1)),
        answers=bool(parts.get("answers", 0)),
        latency_s=parts.get("latency", LATENCY_S),
        load_block_s=parts.get("load_block", 0.0),
        store_block_s=parts.get("store_block", 0.0),
        read_gb_per_s=links.get("read", 0.0),
        write_gb_per_s=links.get("write", 0.0),
        is_assumed=not by_block and not _LINKS.keys() <= parts.keys(),
        preset=preset,
    )


def _setting(given: str, part: str) -> tuple[str, float]:
    """Return the name and the value of ``setting=value``."""
    key, _, text = part.partition("=")
    if key in _LINKS:
        rate = parse_gb_per_s(text)
        if not rate > 0:
            raise InputError(f"tier {given!r}: {key} is {text}; expected > 0 GB/s")
        return key, rate
    if key not in _KNOBS:
        known = (*_KNOBS, *_LINKS)
        raise InputError(
            f"tier {given!r}: {key!r} is not a setting{nearest(key, known)}; it has "
            + ", ".join(known)
        )
    value = _KNOBS[key].parsed(text)
    if value != value:
        raise InputError(
            f"tier {given!r}: {key} is {text!r}; expected {_KNOBS[key].expected}"
        )
    return key, value
