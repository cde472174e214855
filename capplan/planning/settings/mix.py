"""Settings of how many nodes can be had, and of mixes of GPU types."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator

from capplan.errors import InputError
from capplan.fleet.catalog import gpu
from capplan.planning.settings.spares import share_or_percent
from capplan.settings import Settings, setting

MIX = "Mix"
_GAIN = 0.05


def nodes_by_gpu(value: Any) -> Any:
    """Return the most nodes by GPU that ``H100=2,L40S=4`` stands for.

    Examples
    --------
    >>> nodes_by_gpu("h100=2,L40S=4")
    {'H100-SXM': 2, 'L40S': 4}
    """
    if value is None:
        return {}
    if isinstance(value, Mapping):
        given = [(str(name), str(count)) for name, count in value.items()]
    else:
        texts = value if isinstance(value, list | tuple) else [value]
        parts = [part for text in texts for part in str(text).split(",")]
        given = [(part.partition("=")[0], part.partition("=")[2]) for part in parts]
    found: dict[str, int] = {}
    for name, count in given:
        if not (name.strip() and count.strip().isdecimal()):
            raise ValueError(
                f"{f'{name}={count}'.strip('=')!r} is no number of nodes; expected "
                "GPU=NODES, as H100-SXM=2"
            )
        try:
            known = gpu(name.strip()).name
        except InputError:  # one that only a profile knows, or none: the plan says it
            known = name.strip()
        if known in found:
            raise ValueError(f"{known} is given twice; expected once")
        found[known] = int(count)
    return found


class MixSettings(Settings):
    """How many nodes can be had, and whether GPU types are mixed."""

    needs: ClassVar = {"mix_gain": "--mix"}

    max_nodes: Annotated[dict[str, int], BeforeValidator(nodes_by_gpu)] = setting(
        {},
        MIX,
        "GPU=N",
        "Most nodes of a GPU type that you can get (GPUs, where these are priced one "
        "by one): H100-SXM=2.",
        repeated=True,
    )
    mix: bool = setting(
        False,
        MIX,
        "",
        "Also look for replicas of several kinds side by side, each request sent by "
        "its class and size.",
    )
    mix_gain: Annotated[float, BeforeValidator(share_or_percent)] = setting(
        _GAIN,
        MIX,
        "SHARE",
        "Offer a mix only if it costs this much less than the best single type.",
        ge=0,
        lt=1,
    )
