"""Groups of settings of the traffic and the objective."""

from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, PlainSerializer

from capplan.errors import InputError
from capplan.planning.settings.groups import METHOD
from capplan.setting_values import (
    ALL,
    NAMES_FILE,
    PathText,
    Text,
    columns_by_name,
    path_text,
    slo_texts,
    targets_by_class,
)
from capplan.settings import Settings, common, setting, validated_with
from capplan.units import check_duration, parse_duration_s, parse_rate
from capplan.workload.arrivals import MOST_RATE_PER_S
from capplan.workload.frame_file import frame_file, is_frame
from capplan.workload.lengths import parse_mean_length
from capplan.workload.readers import reader as reader_named
from capplan.workload.readers.columns import check_columns
from capplan.workload.readers.options import ReadOptions, tokenizer_file
from capplan.workload.running import MOST_LANES, Sessions
from capplan.workload.scale import MOST_SCALE
from capplan.workload.slo import Slo, parse_slo
from capplan.workload.trace import MAX_TOKENS
from capplan.workload.users import MOST_USERS, Users, parse_think

WORKLOAD = "Workload"
OBJECTIVE = "Objective"

Rate = Annotated[float, Field(gt=0, le=MOST_RATE_PER_S)]
"""An arrival rate. [requests/s]"""


def _trace_path(value: Any) -> Any:
    """Return the path of a trace; a DataFrame is written to a file first."""
    try:
        return frame_file(value) if is_frame(value) else path_text(value)
    except InputError as error:
        raise ValueError(str(error)) from None


MeanLength = Annotated[Text | None, validated_with(parse_mean_length)]
"""A length, or a mean and its standard deviation. [tokens]"""

TracePath = Annotated[str, BeforeValidator(_trace_path), NAMES_FILE]
"""A path; in Python a DataFrame too."""


def _window_s(text: str) -> float:
    """Return the length of windows to be judged, infinite for the whole trace. [s]"""
    if text == "trace":
        return float("inf")
    check_duration(text)
    if not (width_s := parse_duration_s(text)):
        raise InputError(f"{text!r} is no time; expected windows such as 1h, or trace")
    return width_s


class RequestSettings(Settings):
    """Requests to read, as they are."""

    trace: TracePath | None = common(
        None,
        WORKLOAD,
        "FILE",
        "Your requests: CSV, a gateway's log, ShareGPT, Azure or another trace. JSON "
        "and Parquet, spans and texts too, .gz (docs/reference/inputs.md).",
    )
    workload: PathText | None = common(
        None,
        WORKLOAD,
        "NAME|FILE",
        "Or ones that ship: sharegpt, mixed, azure-conv-like, azure-week-like. Or "
        "a .yaml of one (see workloads/), a config of inference-perf, or a folder "
        "of ServeGen's clients.",
    )
    input_len: MeanLength = common(
        None,
        WORKLOAD,
        "TOKENS[:SD]",
        "Or prompts of so many tokens, with --output-len. Of all requests, or mean "
        "and standard deviation (normal, cut at 1), in place of a file.",
    )
    output_len: MeanLength = setting(
        None, WORKLOAD, "TOKENS[:SD]", "Output tokens, as --input-len."
    )
    reader: Annotated[str | None, validated_with(reader_named)] = setting(
        None, WORKLOAD, "NAME", "Trace format (default: detected)."
    )
    columns: Annotated[
        dict[str, str], BeforeValidator(columns_by_name), validated_with(check_columns)
    ] = setting(
        {},
        WORKLOAD,
        "NAME=COLUMN",
        "Columns of a log: arrival_s=timestamp,class=tenant (default: by name).",
        repeated=True,
    )
    sharegpt_rule: Annotated[str | None, validated_with(ReadOptions)] = setting(
        None,
        WORKLOAD,
        "RULE",
        "Turns that make a request: first (default), vllm, multiturn.",
    )
    tokenizer: Annotated[PathText | None, validated_with(tokenizer_file)] = setting(
        None,
        WORKLOAD,
        "FILE",
        "tokenizer.json to count text with (default: estimated).",
    )
    salvage: bool = setting(
        False, WORKLOAD, "", "Read a truncated file up to its last whole record."
    )
    shared_prefix: int | None = setting(
        None, WORKLOAD, "TOKENS", "Give all prompts the same first TOKENS.", ge=0
    )
    output_scale: float | None = setting(
        None,
        WORKLOAD,
        "F",
        "Make all answers F times as long; prompts stay.",
        gt=0,
        le=MOST_SCALE,
    )
    max_new_tokens: int | None = setting(
        None,
        WORKLOAD,
        "TOKENS",
        "Longest answer that clients ask for, by which SGLang and TensorRT-LLM admit; "
        "0: each answer's own length (default: the trace's column, else 0).",
        ge=0,
        le=MAX_TOKENS,
    )
    seed: int = setting(0, METHOD, "N", "Seed of all random draws.", ge=0, le=2**62)


class ArrivalSettings(Settings):
    """How requests arrive, and what policies foresee of them."""

    arrivals: str | None = setting(
        None, WORKLOAD, "PROCESS", "Arrival process: poisson (default), gamma:cv=2."
    )
    predictor: str | None = setting(
        None,
        METHOD,
        "NAME",
        "Output lengths as policies predict them: oracle (default), aladdin, "
        "retrieval:k=16, relative-error:error=0.1.",
    )


class ThinkSettings(Settings):
    """How long users think."""

    think: Annotated[Text | None, validated_with(parse_think)] = setting(
        None,
        WORKLOAD,
        "TIME",
        "Time from an answer to its user's next request: 20s for all, exp:20s on "
        "average (default 0).",
    )

    @property
    def think_time(self) -> tuple[float, bool]:
        """Mean think time [s], and whether it varies."""
        return parse_think(self.think or "0")


class UserSettings(ThinkSettings):
    """Users who wait for their answers, in place of a rate."""

    needs: ClassVar = {"think": "--users"}

    users: int | None = common(
        None,
        WORKLOAD,
        "C",
        "Or users who each wait for an answer before they ask again. In place of a "
        "rate; --think is the time between.",
        flags=("--users", "--concurrency"),
        ge=1,
        le=MOST_USERS,
    )

    @property
    def asking(self) -> Users | None:
        """The users; None without any."""
        think = self.think_time
        return None if self.users is None else Users(self.users, *think)


def _snapshot(text: str) -> tuple[float, float]:
    """Return the shares of ``0.25,0.75``, from and to."""
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        low, high = 1.0, 0.0
    if not 0 <= low <= high <= 1:
        raise InputError(f"{text!r}: expected two shares from 0 to 1 such as 0.25,0.75")
    return low, high


def parse_lanes(text: str) -> int | None:
    """Return so many sessions at once; None for ``auto``."""
    if text == "auto":
        return None
    if not text.isdecimal() or not 1 <= int(text) <= MOST_LANES:
        raise InputError(f"{text!r}: expected 1 to {MOST_LANES:,} sessions")
    return int(text)


class SessionSettings(Settings):
    """Conversations and agents, whose turns come after answers."""

    needs: ClassVar = dict.fromkeys(
        ("snapshot", "at_limit"), "--sessions or --session-rate"
    )

    sessions: Annotated[Text | None, validated_with(parse_lanes)] = setting(
        None,
        WORKLOAD,
        "N",
        "Or conversations: N sessions of your trace at once, each turn after the "
        "answer before it.",
    )
    session_rate: Annotated[Text | None, validated_with(parse_rate)] = setting(
        None,
        WORKLOAD,
        "R",
        "Or sessions that begin at a rate: 0.5/s, 30/min, 200/h (default: as in the "
        "trace).",
    )
    wait_cap: Annotated[Text | None, validated_with(check_duration)] = setting(
        None, WORKLOAD, "TIME", "Cut waits for users and tools: 60s (default: none)."
    )
    snapshot: Annotated[Text | None, validated_with(_snapshot)] = setting(
        None,
        WORKLOAD,
        "LOW,HIGH",
        "Part of its time in which a running session is found at first: 0.25,0.75 "
        "(default: as at any moment).",
    )
    at_limit: Literal["end", "compact"] | None = setting(
        None,
        WORKLOAD,
        "end|compact",
        "A session whose turn is longer than the LLM takes ends (default), or goes on "
        "with a summary.",
    )
    thinking: Literal["kept", "dropped-at-user", "dropped-always"] | None = setting(
        None,
        WORKLOAD,
        "RULE",
        "Thoughts of earlier answers in prompts: kept (default), dropped-at-user "
        "(Qwen3), dropped-always. Of reasoning_tokens.",
    )

    @property
    def snapshot_shares(self) -> tuple[float, float] | None:
        """Part of its time in which a running session is found; None: at any moment."""
        return None if self.snapshot is None else _snapshot(self.snapshot)

    @property
    def has_sessions(self) -> bool:
        """Whether sessions run or begin as asked here."""
        return self.sessions is not None or self.session_rate is not None

    @property
    def running(self) -> Sessions | None:
        """The sessions; None where none are asked for, or as many as are served."""
        found = self.snapshot_shares
        if self.session_rate is not None:
            return Sessions(None, parse_rate(self.session_rate), found)
        if self.sessions is None or (lanes := parse_lanes(self.sessions)) is None:
            return None
        return Sessions(lanes, None, found)


class TrafficSettings(ArrivalSettings, RequestSettings):
    """Requests, and at which rate they arrive."""

    rate: float | None = common(
        None,
        WORKLOAD,
        "R",
        "Requests a second (default: as in your requests). Scales the gaps of a "
        "trace that has times: at twice the rate a day takes 12 h (--scale 2 keeps "
        "the day).",
        gt=0,
        le=MOST_RATE_PER_S,
    )
    scale: float | None = setting(
        None,
        WORKLOAD,
        "F",
        "F times the requests of a trace that has times, at the same hours: below 1 a "
        "random part of its sessions, above 1 shifted copies too.",
        gt=0,
        le=MOST_SCALE,
    )


class LimitSettings(Settings):
    """Limits that a request is to keep."""

    slo: Annotated[
        tuple[str, ...], BeforeValidator(slo_texts), validated_with(parse_slo)
    ] = common(
        (),
        OBJECTIVE,
        "LIMITS",
        "Limits: ttft=1s,tpot=30ms,tbt=0.2s,e2e=20s; of a class chat:ttft=1s. "
        "`trace` uses the trace's slo_* columns.",
        repeated=True,
    )

    def slo_of_requests(self) -> Slo | None:
        """Return the limits of the settings; None without one."""
        return parse_slo(list(self.slo)) if self.slo else None


class ObjectiveSettings(LimitSettings):
    """How many requests are to keep their limits, and which of them count."""

    attainment: Annotated[
        dict[str, Annotated[float, Field(gt=0, le=1)]],
        BeforeValidator(targets_by_class),
        PlainSerializer(
            lambda x: x[ALL] if len(x) == 1 else x, float | dict[str, float]
        ),
    ] = common(
        {ALL: 0.99},
        OBJECTIVE,
        "SHARE|CLASS=SHARE",
        "Share of requests in time, within all limits (default 0.99). vip=0.999 for "
        "a class.",
        repeated=True,
    )
    attainment_of: Literal["class", "all"] = setting(
        "class",
        OBJECTIVE,
        "class|all",
        "Apply --attainment to each class with its own SLO (default `class`), or to "
        "all requests (`all`).",
    )
    attain_in: Annotated[Text | None, validated_with(_window_s)] = setting(
        None,
        OBJECTIVE,
        "TIME|trace",
        "Hold the target in every window of this length: 1h, 5m (default: in every "
        "hour of a trace of 2 h or more with times of its own); `trace`: in all of it.",
    )
    warm_up: Annotated[Text | None, validated_with(check_duration)] = setting(
        None,
        OBJECTIVE,
        "TIME",
        "Time at the start whose requests do not count (default: until drawn arrivals "
        "have warmed the fleet up).",
    )
    drop_oversized: bool = setting(
        False,
        WORKLOAD,
        "",
        "Leave out requests that no replica can serve (default: refuse).",
    )
    extend: bool | None = setting(
        None,
        WORKLOAD,
        "",
        "Resample a short trace until it has enough requests to judge (default: only "
        "drawn arrivals).",
    )

    def objective(self) -> Slo | None:
        """Return the SLO of the settings; None without one."""
        if not self.slo:
            return None
        targets = {name: x for name, x in self.attainment.items() if name != ALL}
        each = self.attainment_of == "class"
        slo = parse_slo(list(self.slo), self.attainment[ALL], targets, each)
        if self.attain_in is None:
            return slo
        return replace(slo, attain_in_s=_window_s(self.attain_in))
