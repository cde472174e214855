"""What can be rented, by name: GPU types, nodes, providers, ways to pay."""

from collections.abc import Mapping
from typing import Any

from capplan.fleet.catalog import gpu, gpu_names
from capplan.fleet.nodes import nodes
from capplan.fleet.offer import KINDS as WAYS
from capplan.fleet.prices import catalog_offers
from capplan.report.columns import format_count
from capplan.report.fields import fields
from capplan.report.pages.kind import NAMED, Kind, named_rows


def _tera(rate: float) -> str:
    return f"{format_count(float(f'{rate / 1e12:.3g}'))} T"


def _gpus() -> list[dict[str, Any]]:
    rows = (gpu(name) for name in gpu_names())
    return [{**vars(row), "vendor": row.vendor} for row in rows]


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


HARDWARE: Mapping[str, Kind] = {
    "gpus": Kind(gpu_names, _gpus, fields("list_gpus", tera=_tera)),
    "nodes": Kind(
        lambda: dict.fromkeys(row.name for row in nodes()), _nodes, fields("list_nodes")
    ),
    "providers": Kind(
        _provider_names,
        _providers,
        fields("list_providers", gpus=lambda row: ", ".join(row["gpus"])),
    ),
    "ways-to-pay": Kind(WAYS, named_rows(WAYS, what=str), NAMED),
}
