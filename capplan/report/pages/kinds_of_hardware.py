"""What can be rented, by name: GPU types, nodes, providers, ways to pay."""

from collections.abc import Mapping
from typing import Any

from capplan.fleet.catalog import gpu, gpu_names
from capplan.fleet.nodes import nodes
from capplan.fleet.offer import KINDS as WAYS
from capplan.fleet.prices import catalog_offers
from capplan.report.columns import Column, column, format_count
from capplan.report.pages.kind import NAME, WHAT, Kind
from capplan.units import format_bytes, format_usd


def _tera(rate: float) -> str:
    return f"{format_count(float(f'{rate / 1e12:.3g}'))} T"


def _gpus() -> list[dict[str, Any]]:
    rows = (gpu(name) for name in gpu_names())
    return [{**vars(row), "vendor": row.vendor} for row in rows]


_GPU_COLUMNS = (
    NAME,
    column("vendor", leaves=1),
    column("architecture", "architecture", justify="left"),
    column("memory_bytes", "memory", format_bytes),
    column("bandwidth_bytes_per_s", "bytes/s", _tera),
    column("bf16_flops", "BF16 FLOP/s", _tera),
    column("fp8_flops", "FP8", _tera),
    column("fp4_flops", "FP4", _tera),
    column("nvlink_bytes_per_s_per_direction"),
    column("max_gpus_per_node", "in a node"),
    column("tdp_w", "W", "{:g}".format),
    column("source"),
    column("confidence"),
)


def _nodes() -> list[dict[str, Any]]:
    asked = {
        (each.provider, each.node): each.usd_per_node_h
        for each in catalog_offers()
        if each.kind == "on-demand"
    }
    return [
        {**vars(row), "usd_per_h": asked.get((row.provider, row.name))}
        for row in nodes()
    ]


_NODE_COLUMNS = (
    NAME,
    column("provider", "provider", justify="left"),
    column("gpu", "GPU", justify="left"),
    column("gpus", "GPUs"),
    column("nvlink_domain_gpus", "joined"),
    column("usd_per_h", "$ per hour", format_usd),
    column("vcpus"),
    column("memory_gib"),
    column("host_power_w"),
    column("as_of", "as of", leaves=1),
    column("source"),
)


def _providers() -> list[dict[str, Any]]:
    offers = catalog_offers()
    return [
        {
            "name": name,
            "offer_count": sum(each.provider == name for each in offers),
            "gpus": sorted({each.gpu for each in offers if each.provider == name}),
            "as_of": max(each.as_of for each in offers if each.provider == name),
        }
        for name in _provider_names()
    ]


def _provider_names() -> list[str]:
    return sorted({each.provider for each in catalog_offers()})


_PROVIDER_COLUMNS = (
    NAME,
    column("offer_count", "offers", format_count),
    column("as_of", "newest of"),
    Column(
        "gpus", lambda row: ", ".join(row["gpus"]), "GPUs", justify="left", is_wide=True
    ),
)


def _ways_to_pay() -> list[dict[str, Any]]:
    return [{"name": name, "what": text} for name, text in WAYS.items()]


HARDWARE: Mapping[str, Kind] = {
    "gpus": Kind("--gpu", "GPU types", gpu_names, _gpus, _GPU_COLUMNS),
    "nodes": Kind(
        "--nodes",
        "nodes that are rented whole",
        lambda: dict.fromkeys(row.name for row in nodes()),
        _nodes,
        _NODE_COLUMNS,
    ),
    "providers": Kind(
        "--provider",
        "providers with a shipped price",
        _provider_names,
        _providers,
        _PROVIDER_COLUMNS,
    ),
    "ways-to-pay": Kind("--kind", "ways to pay", WAYS, _ways_to_pay, (NAME, WHAT)),
}
