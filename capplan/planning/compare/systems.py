"""Published serving systems: scheduler, router, predictor and engine flags of each."""

from pathlib import Path
from typing import Any, NamedTuple

from capplan.deployment.policy import VLLM_V1
from capplan.errors import InputError, nearest
from capplan.input_file import parse_yaml, read_text
from capplan.planning.settings.fleet import DEFAULT_HAND_OFF
from capplan.planning.settings.groups import BUDGETS
from capplan.planning.settings.plan import PlanSettings
from capplan.simulator.hand_offs import computes_last_again
from capplan.simulator.schedulers import SCHEDULERS, check_name, parse_scheduler
from capplan.simulator.schedulers.own_file import file_of

ROOM = "room"
"""Value of a budget: the longest request that the system is set up for, at least 2,048,
as max_model_len is in vLLM 0.4.2, or what the system says."""
TUNED = ("max_num_seqs", "max_num_batched_tokens")
"""Flags that are the same for all, or tuned for each, where the published ones are not
asked for: a default that suited another LLM and GPU is no part of a policy."""


class System(NamedTuple):
    """A serving system as it was published; flags by the names of the settings."""

    scheduler: str  # with its settings; {room} as ROOM
    source: str  # of the flags
    flags: dict[str, Any] = {}  # noqa: RUF012 (never changed)
    prediction_error: float | None = None  # as published, over the true output tokens
    least_room_tokens: int = 2048  # of a budget that is ROOM


_DATA = Path(__file__).parent / "data/systems.yaml"
SYSTEMS = {
    name: System(**row) for name, row in parse_yaml(_DATA, read_text(_DATA))[0].items()
}
"""The systems that ``capplan compare`` knows, in the order of its default.

A flag that the user's scenario gives wins over the one here.
"""

CHUNKED_TOKENS = 512
"""max_num_batched_tokens of vLLM 0.4.2 with --enable-chunked-prefill."""
LINK = ("link_gb_per_s", "host_kv_gib")
"""Settings that only schedulers with swaps take."""


class ResolvedSystem(NamedTuple):
    """A system as it is asked for, with the settings of its plan."""

    name: str  # as the user wrote it
    source: str
    settings: PlanSettings
    given: tuple[str, ...]  # what the scenario gives in place of published flags
    room_tokens: int | None = None  # that it is set up for; None where it has no limit
    budgets: tuple[int, ...] = ()  # to tune max_num_batched_tokens by [tokens]


def check_system(given: str) -> None:
    """Refuse what is neither a system nor a scheduler, with the nearest."""
    name = given.partition(":")[0]
    if given in SYSTEMS:
        return
    if name in SCHEDULERS or file_of(name):
        check_name(given)
        return
    known = dict.fromkeys([*SYSTEMS, *SCHEDULERS])
    if name in SYSTEMS:
        raise InputError(
            f"system {given!r}: {name} takes no settings; its scheduler "
            f"{SYSTEMS[name].scheduler} does"
        )
    raise InputError(
        f"system {given!r} is not known{nearest(name, known)}; expected one of "
        f"{', '.join(known)}, or a scheduler with settings such as orca:max_len=4096, "
        "or a file: ./mine.py"
    )


def resolve(
    given: str,
    settings: PlanSettings,
    room_tokens: int,
    *,
    predicted: bool = False,
    published: bool = False,
) -> ResolvedSystem:
    """Return a system by its name, or by a scheduler with settings.

    A scheduler of a known system keeps the other flags of that system. ``room_tokens``
    is the longest request that it is set up for, where it needs one. With ``predicted``
    the trace brings predictions, which win as the scenario's flags do. With
    ``published`` it has the seats and the token budget that it was published with; or
    else those of all, and budgets to be tuned by.
    """
    name = given.partition(":")[0]
    system = SYSTEMS.get(name, System(given, "the user"))
    chosen = given
    if name == given and given in SYSTEMS:
        chosen = system.scheduler.format(room=room_tokens)
    chosen = check_name(chosen)
    policy = parse_scheduler(chosen)
    flags = dict(system.flags)
    if policy.name == "vllm-v0" and policy.settings.get("chunked"):
        flags["max_num_batched_tokens"] = CHUNKED_TOKENS
    has_room = chosen != given and "{room}" in system.scheduler
    kept = dict(settings)
    overridden = []
    for flag, value in flags.items():
        if value == ROOM:
            has_room = kept[flag] is None
            value = max(room_tokens, system.least_room_tokens)
        elif flag in TUNED and not published:
            continue
        if flag == "router" and kept["dispatcher"]:
            overridden.append(f"dispatcher {kept['dispatcher']} in place of {value}")
        elif flag == "predictor" and predicted:
            overridden.append("predictions of the trace")
        elif flag == "kv_cache_dtype" and kept["kv_blocks"] is not None:
            overridden.append(f"kv_blocks {kept['kv_blocks']} in place of {value} KV")
        elif kept[flag] == PlanSettings.model_fields[flag].default:
            kept[flag] = value
        elif kept[flag] != value:
            overridden.append(f"{flag} {kept[flag]} in place of {value}")
    if not policy.does("swaps"):
        kept |= dict.fromkeys(LINK)
    if kept["rebalancer"]:  # KV goes over the link
        kept["link_gb_per_s"] = settings.link_gb_per_s
    disaggregated = bool(kept["disaggregated"])
    if disaggregated:  # KV goes over the link; requests stay where they decode
        kept |= {"link_gb_per_s": settings.link_gb_per_s, "rebalancer": None}
    drafts = policy.name == VLLM_V1.name
    if disaggregated:
        drafts = computes_last_again(kept["hand_off"] or DEFAULT_HAND_OFF)
    if kept["speculative_config"] and not drafts:
        kept |= dict.fromkeys(("speculative_config", "acceptance_rates", "draft_ms"))
        overridden.append("no drafts")
    budgets: tuple[int, ...] = ()
    fixed = published or policy.rules.reserves or disaggregated
    if not (fixed or settings.max_num_batched_tokens):
        also = flags.get("max_num_batched_tokens"), room_tokens if has_room else None
        tried = {*BUDGETS, *(budget for budget in also if isinstance(budget, int))}
        budgets = tuple(sorted(tried, reverse=True))
    kept |= {"scheduler": chosen, "tune": bool(budgets)}
    room = room_tokens if has_room else None
    return ResolvedSystem(
        given, system.source, PlanSettings(**kept), tuple(overridden), room, budgets
    )
