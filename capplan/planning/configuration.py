"""The configurations that are tried: a GPU type, a TP degree and its iteration time."""

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capplan.deployment import (
    DoesNotFitError,
    EngineSettings,
    Replica,
    default_engine_settings,
    replica,
)
from capplan.errors import ExtrapolationWarning, InputError, ProfileError
from capplan.fleet.catalog import gpu as find_gpu
from capplan.fleet.catalog import parse_price_overrides, price
from capplan.fleet.gpu import Gpu
from capplan.fleet.price import Price
from capplan.latency.catalog import find_profile, list_profiles
from capplan.latency.contract import LatencyTables, linear_tables
from capplan.latency.estimate import estimated_profile
from capplan.latency.profile import Profile
from capplan.latency.profile_file import load_profile
from capplan.llm.architecture import Architecture
from capplan.llm.catalog import llm as find_llm
from capplan.llm.catalog import twins
from capplan.llm.memory import DEFAULT_UTILIZATION
from capplan.planning.settings import PlanSettings
from capplan.units import parse_usd_per_h

_ENGINE_SETTINGS = (
    "max_num_batched_tokens",
    "max_num_seqs",
    "block_size",
    "async_scheduling",
    "prefix_caching",
)


@dataclass(frozen=True)
class Configuration:
    """One GPU type and TP degree that can serve the LLM.

    Parameters
    ----------
    gpu, tp
        GPU type and tensor-parallel degree.
    engine
        Engine settings with the KV blocks filled in.
    tables
        Iteration time.
    price
        Of one GPU; None when nobody says.
    profile
        Where the iteration time is from; None when it was given outright.
    replica
        Where the memory goes; None when the KV blocks were given outright.
    """

    gpu: str
    tp: int
    engine: EngineSettings
    tables: LatencyTables
    price: Price | None
    profile: Profile | None
    replica: Replica | None

    def __str__(self) -> str:
        return f"{self.gpu} × TP {self.tp}"

    def usd_per_h(self, replica_count: int) -> float | None:
        """Return the price of some replicas; None without a price. [$/h]"""
        if self.price is None:
            return None
        return replica_count * self.tp * self.price.usd_per_gpu_h

    @property
    def note(self) -> str:
        """One sentence on where the iteration time is from."""
        if self.profile is None:
            return "Iteration time given outright (--latency-ms)."
        return self.profile.note()


@dataclass(frozen=True)
class Excluded:
    """A GPU type and TP degree that cannot be tried, and why."""

    gpu: str
    tp: int
    reason: str


def configurations(request: PlanSettings) -> Iterator[Configuration | Excluded]:
    """Return what can be tried, in the order of GPUs and TP degrees asked for.

    Raises
    ------
    InputError
        When the LLM or a GPU is unknown, or a setting is not possible.
    ProfileError
        When a profile is malformed.
    """
    if request.llm is None:
        raise InputError("no LLM; give --llm NAME")
    llm = find_llm(request.llm)
    profiled = dict.fromkeys(name for name, _ in _profiled(request, llm))
    gpus = [_listed(name, profiled) for name in request.gpu or profiled]
    if not gpus:
        raise InputError(
            f"no profile of {llm.name} on any GPU; give --gpu with --latency-ms, "
            "or --profiles DIR with a profile measured by capplan profile"
        )
    for gpu in gpus:
        tps = request.tp or _profiled_tps(request, llm, gpu)
        if isinstance(gpu, str):
            for tp in tps:
                yield _unlisted(request, llm, gpu, tp)
            continue
        cost = _price(request, gpu, profiled)
        for tp in tps or (1, 2, 4, 8):
            yield _configuration(request, llm, gpu, tp, cost)


def given_outright(request: PlanSettings) -> Configuration | None:
    """Return the configuration of a request that names neither LLM nor GPU.

    It needs an iteration cost and KV blocks given outright; None when either is
    missing, or there is an LLM to look up.
    """
    if request.llm is not None or None in (request.latency_ms, request.kv_blocks):
        return None
    settings = {name: getattr(request, name) for name in _ENGINE_SETTINGS}
    settings["kv_blocks"] = request.kv_blocks
    engine = EngineSettings(
        **{name: value for name, value in settings.items() if value is not None}
    )
    tp = request.tp[0] if request.tp else 1
    tables = _tables(request, None, engine)
    return Configuration("", tp, engine, tables, None, None, None)


def _folders(request: PlanSettings) -> list[Path]:
    if not request.profiles:
        return []
    folder = Path(request.profiles)
    if not folder.exists():
        raise InputError(f"--profiles {folder}: no such file or folder")
    return [folder]


def _own_profile(request: PlanSettings) -> Profile | None:
    if request.profiles and Path(request.profiles).is_file():
        return load_profile(Path(request.profiles))
    return None


def _profiled(request: PlanSettings, llm: Architecture) -> list[tuple[str, int]]:
    own = _own_profile(request)
    if own is not None:
        return [(own.gpu, own.tp)]
    names = (llm.name, *twins(llm))
    return [
        (path.parts[-3], int(path.stem[2:]))
        for path in list_profiles(_folders(request))
        if path.parts[-2] in names and path.stem[2:].isdigit()
    ]


def _listed(name: str, profiled: Iterable[str]) -> Gpu | str:
    """Return a GPU of the catalog, or the name of one that only a profile knows.

    Raises
    ------
    InputError
        When neither knows it.
    """
    try:
        return find_gpu(name)
    except InputError:
        if name in profiled:
            return name
        raise


def _profiled_tps(
    request: PlanSettings, llm: Architecture, gpu: Gpu | str
) -> tuple[int, ...]:
    name = gpu if isinstance(gpu, str) else gpu.name
    return tuple(sorted({tp for at, tp in _profiled(request, llm) if at == name}))


def _price(request: PlanSettings, gpu: Gpu, profiled: Iterable[str]) -> Price | None:
    overrides = parse_price_overrides(
        f"{name}={text}"
        for name, text in request.price.items()
        if not isinstance(_listed(name, profiled), str)
    )
    return price(gpu.name, overrides, Path(request.prices) if request.prices else None)


def _unlisted(
    request: PlanSettings, llm: Architecture, gpu: str, tp: int
) -> Configuration | Excluded:
    """Return a configuration of a machine that only its profile knows.

    Its engine's settings and KV blocks are those it was measured with.
    """
    profile = _profile(request, llm, gpu, tp)
    if profile is None:
        reason = f"{gpu} is in no catalog, and there is no profile of it at TP {tp}"
        return Excluded(gpu, tp, reason)
    if request.kv_blocks is None and "kv_blocks" not in profile.meta:
        reason = f"{gpu} is in no catalog, and its profile has no KV blocks"
        return Excluded(gpu, tp, f"{reason}; give --kv-blocks")
    settings = _settings(request, profile)
    blocks = request.kv_blocks or int(profile.meta["kv_blocks"])
    engine = EngineSettings(**{**settings, "kv_blocks": blocks})
    cost = None
    if gpu in request.price:
        cost = Price(parse_usd_per_h(request.price[gpu]), "given by the user")
    tables = _tables(request, profile, engine)
    return Configuration(gpu, tp, engine, tables, cost, profile, None)


def _settings(request: PlanSettings, profile: Profile | None) -> dict[str, Any]:
    """Return the engine's settings as asked, else as a profile was measured with.

    What an engine reported of its KV holds for the settings it then had.
    """
    measured = profile.meta if profile and profile.how == "measured" else {}
    names = (*_ENGINE_SETTINGS, "max_model_len")
    found = {name: measured[name] for name in names if name in measured}
    asked = {name: getattr(request, name) for name in _ENGINE_SETTINGS}
    return {**found, **{name: v for name, v in asked.items() if v is not None}}


def _configuration(
    request: PlanSettings, llm: Architecture, gpu: Gpu, tp: int, cost: Price | None
) -> Configuration | Excluded:
    profile = _profile(request, llm, gpu.name, tp)
    engine = default_engine_settings(gpu, **_settings(request, profile))
    try:
        one = _replica(request, llm, gpu, tp, engine, profile)
    except DoesNotFitError as error:
        return Excluded(gpu.name, tp, error.reason)
    if profile is None and request.latency_ms is None:
        try:
            profile = estimated_profile(llm, gpu, tp, _folders(request))
        except ProfileError as error:
            return Excluded(
                gpu.name,
                tp,
                f"no profile of {llm.name} on {gpu.name} at TP {tp}, and no estimate "
                f"({error}); measure one with capplan profile, or give --latency-ms",
            )
        warnings.warn(
            f"{llm.name} on {gpu.name}, TP {tp}: no profile was measured; planned "
            f"with an estimate ({profile.source})",
            ExtrapolationWarning,
            stacklevel=2,
        )
    return Configuration(
        gpu=gpu.name,
        tp=tp,
        engine=one.engine,
        tables=_tables(request, profile, one.engine),
        price=cost,
        profile=profile,
        replica=one,
    )


def _profile(
    request: PlanSettings, llm: Architecture, gpu: str, tp: int
) -> Profile | None:
    if request.latency_ms is not None:
        return None
    own = _own_profile(request)
    if own is None:
        for name in (llm.name, *twins(llm)):
            found = find_profile(name, gpu, tp, _folders(request))
            if found is not None:
                return found
        return None
    if (own.llm, own.gpu, own.tp) != (llm.name, gpu, tp):
        raise ProfileError(
            f"{request.profiles}: is of {own.name}; "
            f"expected {llm.name} on {gpu}, TP {tp}"
        )
    return own


def _replica(
    request: PlanSettings,
    llm: Architecture,
    gpu: Gpu,
    tp: int,
    engine: EngineSettings,
    profile: Profile | None,
) -> Replica:
    utilization = request.gpu_memory_utilization
    return replica(
        llm,
        gpu,
        tp,
        engine,
        gpu_memory_utilization=(
            DEFAULT_UTILIZATION if utilization is None else utilization
        ),
        kv_dtype=profile.kv_element if profile else "bf16",
        reported_kv_blocks=request.kv_blocks,
        reported_kv_tokens=profile.kv_tokens if profile else None,
    )


def _tables(
    request: PlanSettings, profile: Profile | None, engine: EngineSettings
) -> LatencyTables:
    tables = _engine_tables(request, profile, engine)
    if request.api_overhead_ms is None:
        return tables
    return tables._replace(request_s=request.api_overhead_ms / 1e3)


def _engine_tables(
    request: PlanSettings, profile: Profile | None, engine: EngineSettings
) -> LatencyTables:
    if request.latency_ms is not None:
        c0, ca, cq, cd, ce = (value / 1e3 for value in request.latency_ms)
        return linear_tables(
            c0,
            ca,
            cq,
            cd,
            ce,
            max_batch=engine.max_num_seqs,
            max_tokens=engine.max_num_batched_tokens,
        )
    assert profile is not None
    return profile.tables(
        engine.max_num_seqs, engine.max_num_batched_tokens, sigma=request.latency_sigma
    )


def only_configuration(request: PlanSettings) -> Configuration:
    """Return the one configuration that is named.

    Raises
    ------
    InputError
        When none can run, or more than one is named.
    """
    outright = given_outright(request)
    if outright is not None:
        return outright
    found = list(configurations(request))
    able = [one for one in found if isinstance(one, Configuration)]
    if not able:
        excluded = [one for one in found if isinstance(one, Excluded)]
        raise InputError("; ".join(one.reason for one in excluded))
    if len(able) > 1:
        names = ", ".join(f"{one.gpu} × TP {one.tp}" for one in able)
        raise InputError(
            f"{len(able)} configurations ({names}); name one with --gpu and --tp"
        )
    return able[0]
