"""What is asked of a plan: one field is one flag, one scenario key, one argument."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
)

from capplan.errors import InputError

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
    for name, engine in value.items():
        if isinstance(engine, Mapping):
            texts.append(f"{name}:{_limit_text(engine)}")
    return tuple(texts)


def _limit_text(engine: Mapping[str, Any]) -> str:
    return ",".join(f"{metric}={limit}" for metric, limit in engine.items())


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


def _setting(
    default: Any, panel: str, metavar: str, description: str, **checks: Any
) -> Any:
    """Return a field with what the command line shows of it."""
    shown: dict[str, JsonValue] = {"panel": panel, "metavar": metavar}
    return Field(default, description=description, json_schema_extra=shown, **checks)


class SettingError(InputError):
    """A setting that cannot be asked; ``setting`` is its name."""

    def __init__(self, setting: str, message: str) -> None:
        super().__init__(message)
        self.setting = setting


class PlanSettings(BaseModel):
    """All that a plan depends on; a field left None takes capplan's default.

    The description of each field is its help text on the command line.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    trace: PathText | None = _setting(
        None,
        WORKLOAD,
        "FILE",
        "Requests: ShareGPT JSON, Azure CSV, plain CSV; .gz too.",
    )
    workload: PathText | None = _setting(
        None,
        WORKLOAD,
        "NAME|FILE",
        "A workload shipped with capplan, or a .yaml of one.",
    )
    rate: float | None = _setting(
        None, WORKLOAD, "R", "Requests per second; rescales a trace with times.", gt=0
    )
    arrivals: str | None = _setting(
        None, WORKLOAD, "LAW", "How requests arrive: poisson, gamma:cv=2."
    )
    reader: str | None = _setting(
        None, WORKLOAD, "NAME", "Format of the trace, where its content misleads."
    )
    sharegpt_rule: str | None = _setting(
        None, WORKLOAD, "RULE", "Turns that make a request: first, vllm, multiturn."
    )
    tokenizer: PathText | None = _setting(
        None, WORKLOAD, "FILE", "A tokenizer.json to count text with; else estimated."
    )
    salvage: bool = _setting(
        False, WORKLOAD, "", "Keep the whole records of a file that is cut off."
    )
    drop_oversized: bool = _setting(
        False, WORKLOAD, "", "Leave out requests that no replica can hold."
    )
    shared_prefix: int | None = _setting(
        None, WORKLOAD, "TOKENS", "All prompts begin with the same TOKENS.", ge=0
    )
    extend: bool = _setting(
        True, WORKLOAD, "", "Resample requests where a trace is too short."
    )
    slo: Annotated[tuple[str, ...], BeforeValidator(_limits)] = _setting(
        (), OBJECTIVE, "LIMITS", "ttft=1s,tpot=30ms,e2e=20s; chat:ttft=1s for a class."
    )
    attainment: float = _setting(
        0.99, OBJECTIVE, "SHARE", "Share of requests that must attain it.", gt=0, le=1
    )
    llm: PathText | None = _setting(
        None, CHOICES, "NAME|FILE", "The model: a known name, or its config.json."
    )
    gpu: Annotated[tuple[str, ...], BeforeValidator(_list)] = _setting(
        (), CHOICES, "A,B", "GPU types to choose from; all with a profile if absent."
    )
    tp: Annotated[tuple[int, ...], BeforeValidator(_list)] = _setting(
        (), CHOICES, "1,2", "Tensor-parallel degrees; all with a profile if absent."
    )
    price: Annotated[dict[str, str], BeforeValidator(_prices)] = _setting(
        {}, CHOICES, "GPU=USD", "Price of one GPU for an hour: H100-SXM=2.49."
    )
    prices: PathText | None = _setting(
        None, CHOICES, "FILE", "Your own prices file; goes before the shipped ones."
    )
    max_num_batched_tokens: int | None = _setting(
        None, ENGINE, "N", "Token budget of an iteration.", ge=1
    )
    max_num_seqs: int | None = _setting(
        None, ENGINE, "N", "Most requests running at once.", ge=1
    )
    block_size: int | None = _setting(None, ENGINE, "N", "Tokens in a KV block.", ge=1)
    kv_blocks: int | None = _setting(
        None, ENGINE, "N", "KV blocks of a replica, instead of the computed ones.", ge=2
    )
    gpu_memory_utilization: float | None = _setting(
        None, ENGINE, "SHARE", "Share of GPU memory the engine may use.", gt=0, le=1
    )
    async_scheduling: bool | None = _setting(
        None, ENGINE, "", "Schedule iteration k + 1 while k runs."
    )
    prefix_caching: bool | None = _setting(
        None, ENGINE, "", "Keep and share full KV blocks."
    )
    tune: bool = _setting(
        False, ENGINE, "", "Try smaller token budgets too, and take what saves GPUs."
    )
    api_overhead_ms: float | None = _setting(
        None,
        ENGINE,
        "MS",
        "Front end's time before a request reaches the engine.",
        ge=0,
    )
    profiles: PathText | None = _setting(
        None, LATENCY, "DIR|FILE", "Your own latency profiles; go before the shipped."
    )
    latency_ms: Annotated[tuple[float, ...] | None, BeforeValidator(_list)] = _setting(
        None, LATENCY, "c0,ca,cq,cd,ce", "Iteration cost given outright, no profile."
    )
    latency_sigma: float = _setting(
        0.0, LATENCY, "Z", "Plan Z standard errors of the profile on the slow side."
    )
    router: str | None = _setting(
        None, METHOD, "NAME", "How requests are spread over replicas."
    )
    predictor: str | None = _setting(
        None,
        METHOD,
        "NAME",
        "What routers believe of answers: oracle, aladdin, relative-error:error=0.1.",
    )
    solver: str | None = _setting(
        None,
        METHOD,
        "NAME",
        "A router, or mip: tries all and places the hardest moment exactly.",
    )
    out: PathText | None = _setting(
        None,
        OUTPUT,
        "DIR",
        "Write the answer there, for people and for scripts.",
    )
    executor: str = _setting(
        "local", METHOD, "NAME", "Where candidates are simulated: local, ray."
    )
    ray_address: str | None = _setting(
        None, METHOD, "ADDRESS", "Of a running Ray cluster; auto for this machine's."
    )
    seed: int = _setting(0, METHOD, "N", "Of every random draw.", ge=0)

    def __init__(self, **values: Any) -> None:
        """Refuse what cannot be asked, with the field's name and what is wrong."""
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise explain(error, type(self)) from None
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

    replicas: int = _setting(1, CHOICES, "N", "Replicas of the deployment.", ge=1)
    record_iterations: PathText | None = _setting(
        None, OUTPUT, "FILE", "Write one row per engine iteration (CSV, .gz too)."
    )
    per_request: PathText | None = _setting(
        None, OUTPUT, "FILE", "Write the times of every request (CSV, .gz too)."
    )
    trace_events: PathText | None = _setting(
        None, OUTPUT, "FILE", "Write the schedule for chrome://tracing or Perfetto."
    )
    stream: bool | None = _setting(
        None, METHOD, "", "Read the CSV as it is served; large ones are anyway."
    )


def nearest_setting(name: str, model: type[PlanSettings]) -> str:
    """Return "; did you mean X?" when a setting is near, else nothing."""
    near = get_close_matches(name, model.model_fields, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def explain(error: ValidationError, model: type[PlanSettings]) -> SettingError:
    """Return the first complaint of pydantic as one line."""
    first = error.errors()[0]
    name = str(first["loc"][0]) if first["loc"] else "request"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        return SettingError(
            name, f"{name} is not a setting{nearest_setting(name, model)}"
        )
    if first["type"] == "value_error":
        return SettingError(name, f"{name}: {message}")
    expected = message.replace("Input should be", "expected").partition(",")[0]
    return SettingError(name, f"{name} is {first['input']!r}; {expected}")
