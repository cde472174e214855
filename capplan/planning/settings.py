"""What is asked of a plan: one field is one flag, one scenario key, one argument."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator

from capplan.settings import SettingError, Settings, setting

WORKLOAD = "Workload"
OBJECTIVE = "Objective"
CHOICES = "LLM, GPUs and prices"
ENGINE = "Engine (vLLM's names)"
LATENCY = "Latency"
METHOD = "Method"
OUTPUT = "Output"


def _list(value: Any) -> Any:
    """Return the parts of ``A,B``; a number stands for a list of one."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return (value,) if isinstance(value, int | float) else value


def _limits(value: Any) -> Any:
    """Return the texts of SLOs; in YAML they may be ``{ttft: 1s}`` or by class."""
    if not isinstance(value, Mapping):
        return (value,) if isinstance(value, str) else value
    own = {k: v for k, v in value.items() if not isinstance(v, Mapping)}
    texts = [_limit_text(own)] if own else []
    for name, limits in value.items():
        if isinstance(limits, Mapping):
            texts.append(f"{name}:{_limit_text(limits)}")
    return tuple(texts)


def _limit_text(limits: Mapping[str, Any]) -> str:
    return ",".join(f"{metric}={limit}" for metric, limit in limits.items())


def _prices(value: Any) -> Any:
    """Return the mapping that ``GPU=PRICE`` texts stand for."""
    if isinstance(value, Mapping):
        return {gpu: str(price) for gpu, price in value.items()}
    if value is None:
        return {}
    prices: dict[str, str] = {}
    for text in [value] if isinstance(value, str) else value:
        for part in str(text).split(","):
            gpu, equals, price = part.partition("=")
            if not (equals and gpu.strip() and price.strip()):
                raise ValueError(f"{part!r} is not a price; expected GPU=USD_PER_H")
            prices[gpu.strip()] = price.strip()
    return prices


def _path(value: Any) -> Any:
    return None if value is None else str(value)


PathText = Annotated[str, BeforeValidator(_path)]


class PlanSettings(Settings):
    """Settings of a plan; a field left None takes capplan's default."""

    trace: PathText | None = setting(
        None,
        WORKLOAD,
        "FILE",
        "Requests: ShareGPT JSON, Azure CSV, plain CSV; .gz too.",
    )
    workload: PathText | None = setting(
        None,
        WORKLOAD,
        "NAME|FILE",
        "A workload shipped with capplan, or a .yaml of one.",
    )
    rate: float | None = setting(
        None, WORKLOAD, "R", "Requests per second; rescales a trace with times.", gt=0
    )
    arrivals: str | None = setting(
        None, WORKLOAD, "LAW", "How requests arrive: poisson, gamma:cv=2."
    )
    reader: str | None = setting(
        None, WORKLOAD, "NAME", "Format of the trace, where its content misleads."
    )
    sharegpt_rule: str | None = setting(
        None, WORKLOAD, "RULE", "Turns that make a request: first, vllm, multiturn."
    )
    tokenizer: PathText | None = setting(
        None, WORKLOAD, "FILE", "A tokenizer.json to count text with; else estimated."
    )
    salvage: bool = setting(
        False, WORKLOAD, "", "Keep the whole records of a file that is cut off."
    )
    drop_oversized: bool = setting(
        False, WORKLOAD, "", "Leave out requests that no replica can hold."
    )
    shared_prefix: int | None = setting(
        None, WORKLOAD, "TOKENS", "All prompts begin with the same TOKENS.", ge=0
    )
    extend: bool = setting(
        True, WORKLOAD, "", "Resample requests where a trace is too short."
    )
    slo: Annotated[tuple[str, ...], BeforeValidator(_limits)] = setting(
        (), OBJECTIVE, "LIMITS", "ttft=1s,tpot=30ms,e2e=20s; chat:ttft=1s for a class."
    )
    attainment: float = setting(
        0.99, OBJECTIVE, "SHARE", "Share of requests that must attain it.", gt=0, le=1
    )
    llm: PathText | None = setting(
        None, CHOICES, "NAME|FILE", "The model: a known name, or its config.json."
    )
    gpu: Annotated[tuple[str, ...], BeforeValidator(_list)] = setting(
        (), CHOICES, "A,B", "GPU types to choose from; all with a profile if absent."
    )
    tp: Annotated[tuple[int, ...], BeforeValidator(_list)] = setting(
        (), CHOICES, "1,2", "Tensor-parallel degrees; all with a profile if absent."
    )
    price: Annotated[dict[str, str], BeforeValidator(_prices)] = setting(
        {}, CHOICES, "GPU=USD", "Price of one GPU for an hour: H100-SXM=2.49."
    )
    prices: PathText | None = setting(
        None, CHOICES, "FILE", "Your own prices file; goes before the shipped ones."
    )
    max_num_batched_tokens: int | None = setting(
        None, ENGINE, "N", "Token budget of an iteration.", ge=1
    )
    max_num_seqs: int | None = setting(
        None, ENGINE, "N", "Most requests running at once.", ge=1
    )
    block_size: int | None = setting(None, ENGINE, "N", "Tokens in a KV block.", ge=1)
    kv_blocks: int | None = setting(
        None, ENGINE, "N", "KV blocks of a replica, instead of the computed ones.", ge=2
    )
    gpu_memory_utilization: float | None = setting(
        None, ENGINE, "SHARE", "Share of GPU memory the engine may use.", gt=0, le=1
    )
    async_scheduling: bool | None = setting(
        None, ENGINE, "", "Schedule iteration k + 1 while k runs."
    )
    prefix_caching: bool | None = setting(
        None, ENGINE, "", "Keep and share full KV blocks."
    )
    tune: bool = setting(
        False, ENGINE, "", "Try smaller token budgets too, and take what saves GPUs."
    )
    api_overhead_ms: float | None = setting(
        None,
        ENGINE,
        "MS",
        "Front end's time before a request reaches the engine.",
        ge=0,
    )
    profiles: PathText | None = setting(
        None, LATENCY, "DIR|FILE", "Your own latency profiles; go before the shipped."
    )
    latency_ms: Annotated[tuple[float, ...] | None, BeforeValidator(_list)] = setting(
        None, LATENCY, "c0,ca,cq,cd,ce", "Iteration cost given outright, no profile."
    )
    latency_sigma: float = setting(
        0.0, LATENCY, "Z", "Plan Z standard errors of the profile on the slow side."
    )
    router: str | None = setting(
        None, METHOD, "NAME", "How requests are spread over replicas."
    )
    predictor: str | None = setting(
        None,
        METHOD,
        "NAME",
        "What routers believe of answers: oracle, aladdin, relative-error:error=0.1.",
    )
    solver: str | None = setting(
        None,
        METHOD,
        "NAME",
        "A router, or mip: tries all and places the hardest moment exactly.",
    )
    out: PathText | None = setting(
        None,
        OUTPUT,
        "DIR",
        "Write the answer there, for people and for scripts.",
    )
    executor: str = setting(
        "local", METHOD, "NAME", "Where candidates are simulated: local, ray."
    )
    ray_address: str | None = setting(
        None, METHOD, "ADDRESS", "Of a running Ray cluster; auto for this machine's."
    )
    seed: int = setting(0, METHOD, "N", "Of every random draw.", ge=0)

    def __init__(self, **values: Any) -> None:
        """Refuse settings that contradict each other."""
        super().__init__(**values)
        if self.latency_ms is not None and len(self.latency_ms) != 5:
            raise SettingError(
                "latency_ms",
                f"latency_ms has {len(self.latency_ms)} numbers; "
                "expected c0,ca,cq,cd,ce",
            )
        if self.trace and self.workload:
            raise SettingError(
                "workload", "trace and workload are both given; expected one of them"
            )


class SimulateSettings(PlanSettings):
    """All that the simulation of one given deployment depends on."""

    replicas: int = setting(1, CHOICES, "N", "Replicas of the deployment.", ge=1)
    record_iterations: PathText | None = setting(
        None, OUTPUT, "FILE", "Write one row per engine iteration (CSV, .gz too)."
    )
    per_request: PathText | None = setting(
        None, OUTPUT, "FILE", "Write the times of every request (CSV, .gz too)."
    )
    trace_events: PathText | None = setting(
        None, OUTPUT, "FILE", "Write the schedule for chrome://tracing or Perfetto."
    )
    stream: bool | None = setting(
        None, METHOD, "", "Read the CSV as it is served; large ones are anyway."
    )
