"""Groups of settings: a command reads those that its own settings inherit."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field

from capplan.currency import Currency, currency_of, parse_code
from capplan.engines.catalog import ENGINES, VLLM, parse_engine
from capplan.errors import InputError
from capplan.fleet.gpu_file import GpuFileSettings
from capplan.fleet.prices import parse_kind
from capplan.latency.measured_factor import factor_text
from capplan.planning.settings.engine import ENGINE as ENGINE
from capplan.planning.settings.engine import MOST_MS, InputSettings, ParallelSettings
from capplan.setting_values import PathText, Text, day, listed, parts, prices_by_gpu
from capplan.settings import Settings, common, parsed_with, setting, validated_with
from capplan.simulator.dispatchers import DISPATCHERS
from capplan.simulator.routers import ROUTERS
from capplan.simulator.schedulers import SCHEDULERS, check_name
from capplan.today import current_day

CHOICES = "LLM, GPUs and prices"
LATENCY = "Latency"
METHOD = "Method"
OUTPUT = "Output"

BUDGETS = (4096, 2048, 1024, 512)
"""Values of max_num_batched_tokens tried where it is tuned. [tokens]"""
MOST_REPLICAS = 65_536
"""Replicas that a simulation has memory for."""


MOST_SEQS = 65_536
"""Requests that may run at once, or tokens of a KV block; tables have a row of each."""

MOST_BATCHED_TOKENS = 2**20
"""Tokens of an iteration; tables have a row of each."""

MOST_KV_BLOCKS = 10**9
"""KV blocks of a replica: more than any GPU holds."""


class ReplicaSettings(ParallelSettings, InputSettings, GpuFileSettings):
    """LLM, GPUs, and the room of an engine on them."""

    llm: Annotated[PathText | None, BeforeValidator(listed)] = common(
        None,
        CHOICES,
        "NAME|FILE",
        "The model: its name (capplan list llms), or its config.json. In `plan` "
        "also A,B.",
    )
    gpu: Annotated[tuple[str, ...], BeforeValidator(parts)] = common(
        (), CHOICES, "A,B", "GPU types (default: all with times of the model)."
    )
    tp: Annotated[tuple[int, ...], BeforeValidator(parts)] = common(
        (),
        CHOICES,
        "1,2",
        "GPUs that hold one copy of the model (default: all with times). Degrees "
        "of tensor parallelism.",
    )
    max_num_batched_tokens: int | None = setting(
        None,
        ENGINE,
        "N",
        "Token budget of an iteration (default: the engine's for the GPU).",
        ge=1,
        le=MOST_BATCHED_TOKENS,
    )
    max_num_seqs: int | None = setting(
        None,
        ENGINE,
        "N",
        "Most requests running at once (default: the engine's for the GPU).",
        ge=1,
        le=MOST_SEQS,
    )
    block_size: int | None = setting(
        None,
        ENGINE,
        "N",
        "Tokens in a KV block (default 16; SGLang 1 or 64, TensorRT-LLM 32).",
        ge=1,
        le=MOST_SEQS,
    )
    kv_blocks: int | None = setting(
        None,
        ENGINE,
        "N",
        "KV blocks of a replica (default: computed from memory).",
        ge=2,
        le=MOST_KV_BLOCKS,
    )
    kv_cache_dtype: Literal["auto", "bf16", "fp8"] = setting(
        "auto",
        ENGINE,
        "auto|bf16|fp8",
        "Numbers in the KV cache (auto: FP8 if the checkpoint states it, else BF16).",
    )
    gpu_memory_utilization: float | None = setting(
        None,
        ENGINE,
        "SHARE",
        "Share of GPU memory for the engine (default: the engine's, vLLM's 0.92).",
        gt=0,
        le=1,
    )


class MarketSettings(Settings):
    """Offers to choose from."""

    prices: PathText | None = setting(
        None,
        CHOICES,
        "FILE",
        "Offers of nodes or GPUs, used before the shipped ones: CSV or YAML, or a "
        "price file of SkyPilot, gpuhunt, Azure or Kubecost.",
    )
    nodes: Annotated[tuple[str, ...], BeforeValidator(parts)] = setting(
        (), CHOICES, "NAME,...", "The only nodes to buy (default: any)."
    )
    provider: str | None = common(
        None, CHOICES, "NAME", "Provider (default: the bill at the lower quartile)."
    )
    region: str | None = setting(
        None, CHOICES, "NAME", "Region to buy in (default: any)."
    )
    price_date: Annotated[str | None, BeforeValidator(day)] = setting(
        None,
        CHOICES,
        "DATE",
        "Offers as of this day: newer ones are not used (default: the newest).",
    )
    allow_odd_price: bool = setting(
        False,
        CHOICES,
        "",
        "Take prices of a file that are far from those known of the GPU.",
    )
    currency: Annotated[str | None, parsed_with(parse_code)] = setting(
        None,
        CHOICES,
        "CODE",
        "Currency to show amounts in, and of rows of a price file: EUR.",
    )
    exchange_rate: float | None = setting(
        None, CHOICES, "USD", "Dollars of one unit of the currency: 1.08.", gt=0
    )

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield what contradicts in currency and rate."""
        yield from super().contradictions()
        try:
            currency_of(self.currency, self.exchange_rate)
        except InputError as error:
            yield "exchange_rate", str(error)

    @property
    def money(self) -> Currency:
        """The currency that amounts are shown in."""
        return currency_of(self.currency, self.exchange_rate)


class PriceSettings(MarketSettings):
    """What GPUs cost."""

    price: Annotated[dict[str, str], BeforeValidator(prices_by_gpu)] = common(
        {},
        CHOICES,
        "GPU=USD",
        "Your price of a GPU-hour: H100-SXM=2.49. It goes before the catalog's and "
        "buys whole nodes of the sizes known; H100-SXM=2.49/gpu buys GPUs one by "
        "one.",
        repeated=True,
    )
    kind: Annotated[str, parsed_with(parse_kind)] = common(
        "on-demand",
        CHOICES,
        "KIND",
        "How to pay: on-demand (default), reserved:12, spot or owned. Also flex, "
        "minimum.",
    )
    as_of: Annotated[str | None, BeforeValidator(day)] = setting(
        None, CHOICES, "DATE", "Reference date for the age of prices (default: today)."
    )

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield two days of prices."""
        yield from super().contradictions()
        if self.as_of and self.price_date and self.as_of != self.price_date:
            yield (
                "as_of",
                f"as_of is {self.as_of} and price_date {self.price_date}; expected one "
                "day: the age of offers is counted to price_date",
            )

    def dated(self) -> Self:
        """Return settings with the day that prices are looked at: today by default."""
        if self.as_of is not None:
            return self
        day = self.price_date or current_day().isoformat()
        return self.model_copy(update={"as_of": day})


class ServerSettings(Settings):
    """What of an engine shows only while requests come and go."""

    async_scheduling: bool | None = setting(
        None, ENGINE, "", "Schedule iteration k + 1 while k runs (default: on)."
    )
    prefix_caching: bool | None = setting(
        None, ENGINE, "", "Keep and share full KV blocks (default: on)."
    )
    link_gb_per_s: float | None = setting(
        None,
        ENGINE,
        "GB/S",
        "Bandwidth of each GPU's link, for KV that moves: to other replicas (default: "
        "its network; 24 to the host, for swaps).",
        gt=0,
    )
    host_kv_gib: float | None = setting(
        None,
        ENGINE,
        "GIB",
        "Host memory for swapped KV, for each GPU (default 4).",
        ge=0,
    )
    api_overhead_ms: float | None = setting(
        None,
        ENGINE,
        "MS",
        "Time of the API server per request (default: as measured, for kernel sums).",
        ge=0,
        le=MOST_MS,
    )
    api_server_count: int | None = setting(
        None, ENGINE, "N", "API server processes of a replica (default 1).", ge=1
    )


def _check_coefficients(latency_ms: tuple[float, ...] | None) -> None:
    """Refuse another number of coefficients than an iteration time has."""
    if latency_ms is not None and len(latency_ms) != 5:
        raise InputError(f"has {len(latency_ms)} numbers; expected c0,ca,cq,cd,ce")


class LatencySettings(Settings):
    """How long an iteration takes."""

    engine: Annotated[str | None, validated_with(parse_engine)] = common(
        None,
        LATENCY,
        "NAME@VERSION",
        f"Engine: vllm (default), {', '.join(sorted({*ENGINES} - {VLLM.name}))}, or "
        "a release: vllm@0.13. Its scheduler, defaults, times and command; without "
        "a release the times of the newest measured.",
    )
    profiles: PathText | None = common(
        None,
        LATENCY,
        "DIR|FILE",
        "Times that capplan profile measured on your GPU. Used before the shipped "
        "ones.",
    )
    latency_ms: Annotated[
        tuple[Annotated[float, Field(ge=0, le=MOST_MS)], ...] | None,
        BeforeValidator(parts),
        validated_with(_check_coefficients),
    ] = setting(
        None,
        LATENCY,
        "c0,ca,cq,cd,ce",
        "Coefficients of the iteration time, in place of a profile.",
    )
    engine_overhead: PathText | None = setting(
        None,
        LATENCY,
        "none|FILE",
        "Engine's time on top of its kernels: none, or a file (default: shipped).",
    )
    backtest: Annotated[Text | None, parsed_with(factor_text)] = setting(
        None,
        LATENCY,
        "FILE",
        "backtest.json of a fleet that runs: its φ on the times, and its interval in "
        "place of the load tests'.",
    )
    latency_quantile: float | None = setting(
        None,
        LATENCY,
        "Q",
        "Quantile of measured iteration times to plan with; higher is more cautious "
        "(default 0.5).",
        ge=0.01,
        le=0.99,
    )

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield a release beside times that are of none."""
        yield from super().contradictions()
        if self.latency_ms is not None and "@" in (self.engine or ""):
            yield "engine", "engine is of a profile; latency_ms takes its place"


class ConfigurationSettings(LatencySettings, ReplicaSettings):
    """Replicas, and how long an iteration of theirs takes."""


class RouterSettings(Settings):
    """The router before the replicas."""

    router: str | None = setting(
        None,
        METHOD,
        "NAME",
        f"Router: {', '.join(ROUTERS)} (default jsq); llm-d:refresh=50ms.",
    )
    dispatcher: str | None = setting(
        None,
        METHOD,
        "NAME",
        "Collect arrivals until a beat and place them together, in place of a router: "
        f"{', '.join(DISPATCHERS)}; aladdin:beat=0.2s,theta=0.5.",
    )


class SchedulerSettings(Settings):
    """The scheduler of a replica."""

    scheduler: Annotated[PathText | None, parsed_with(check_name)] = setting(
        None,
        METHOD,
        "NAME|FILE.py",
        f"Scheduler: {', '.join(SCHEDULERS)} (default vllm-v1); orca:max_len=4096.",
    )


def _chosen(solver: str | None) -> str | None:
    """Return a solver; simulating with the router alone is none."""
    return None if solver == "simulated" else solver


class TrialSettings(Settings):
    """What a plan tries beside what was asked."""

    tune: bool = setting(
        True, ENGINE, "", "Also try smaller max_num_batched_tokens (default: on)."
    )
    solver: Annotated[str | None, AfterValidator(_chosen)] = setting(
        None,
        METHOD,
        "NAME",
        "Also try all routers and solve the peak heartbeat's placement exactly: mip "
        "(= cp-sat), scip, highs.",
    )


class ExecutorSettings(Settings):
    """Where simulations run."""

    executor: str = setting("local", METHOD, "NAME", "Run simulations: local or ray.")
    ray_address: str | None = setting(
        None,
        METHOD,
        "ADDRESS",
        "Address of a running Ray cluster; auto for one on this machine.",
    )


class OutputSettings(Settings):
    """Where files are written."""

    out: PathText | None = common(
        None, OUTPUT, "DIR", "Folder for report.html, JSON and tables."
    )


def folders(settings: ConfigurationSettings) -> list[Path]:
    """Return the user's folders of profiles."""
    return [Path(settings.profiles)] if settings.profiles else []
