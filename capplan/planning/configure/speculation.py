"""What the settings say of speculative decoding, checked and with its acceptance."""

import json
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.speculation import (
    METHODS,
    MOST_DRAFTS,
    WITHOUT_KV,
    Speculation,
    check_rates,
    rates_of_length,
)
from capplan.errors import InputError, warn
from capplan.llm.acceptance import (
    Acceptance,
    draft_share,
    has_mtp_layer,
    measured_acceptance,
)
from capplan.llm.architecture import Architecture
from capplan.llm.catalog import llm_names
from capplan.planning.settings.asked import Asked
from capplan.planning.settings.speculation import SpeculationSettings
from capplan.setting_values import check_keys, json_object

_PASSED_ON = ("model", "draft_tensor_parallel_size")
"""Keys that ``vllm serve`` gets and that change nothing here."""
_OF_ACCEPTANCE = (
    "rejection_sample_method",
    "synthetic_acceptance_rates",
    "synthetic_acceptance_length",
)
_DYNAMIC = "num_speculative_tokens_per_batch_size"
Drafting = TypeVar("Drafting", bound=SpeculationSettings)
SEARCHED = (0, 1, 2, 3)
"""Drafted tokens that a plan tries where none are given."""


@dataclass(frozen=True)
class SpeculativeConfig:
    """What ``--speculative-config`` says."""

    method: str
    drafts: int | None  # None: a plan searches
    rates: tuple[float, ...] | None  # of synthetic acceptance
    given: dict[str, Any]  # as it was given

    def launched(self, drafts: int) -> str:
        """Return it as ``vllm serve`` takes it, with so many drafted tokens."""
        return json.dumps(
            self.given | {"num_speculative_tokens": drafts}, separators=(",", ":")
        )


def parse_speculative_config(text: str) -> SpeculativeConfig:
    """Return what the JSON of ``--speculative-config`` says.

    Examples
    --------
    >>> parse_speculative_config('{"method":"mtp","num_speculative_tokens":3}').drafts
    3
    """
    where = "--speculative-config"
    given = json_object(text, where, '{"method": ...}')
    if _DYNAMIC in given:
        raise InputError(
            f"{where}: {_DYNAMIC} is not modelled: the iterations of a request would "
            "not be known at its arrival; give num_speculative_tokens"
        )
    keys = ("method", "num_speculative_tokens", *_OF_ACCEPTANCE, *_PASSED_ON)
    check_keys(given, keys, where)
    method = given.get("method")
    if isinstance(method, str) and method.endswith("_mtp"):
        method = "mtp"  # vLLM's older names of it
    if method not in METHODS:
        raise InputError(
            f"{where}: method is {given.get('method')!r}; expected one of "
            f"{', '.join(METHODS)} (others are not modelled)"
        )
    drafts = given.get("num_speculative_tokens")
    is_count = isinstance(drafts, int) and not isinstance(drafts, bool)
    if drafts is not None and not (is_count and 1 <= drafts <= MOST_DRAFTS):
        raise InputError(
            f"{where}: num_speculative_tokens is {drafts!r}; expected 1 to "
            f"{MOST_DRAFTS}, or none to search 0 to {SEARCHED[-1]}"
        )
    rates = _synthetic(given, drafts, where)
    return SpeculativeConfig(method, drafts, rates, given)


def _synthetic(
    given: dict[str, Any], drafts: int | None, where: str
) -> tuple[float, ...] | None:
    """Return the rates of vLLM's synthetic acceptance, or None."""
    method = given.get("rejection_sample_method", "standard")
    rates = given.get("synthetic_acceptance_rates")
    length = given.get("synthetic_acceptance_length")
    if method not in ("standard", "synthetic"):
        raise InputError(
            f"{where}: rejection_sample_method is {method!r}; expected standard or "
            "synthetic"
        )
    if method == "standard":
        if rates is not None or length is not None:
            raise InputError(
                f"{where}: synthetic acceptance is given; expected "
                "rejection_sample_method synthetic with it"
            )
        return None
    if (rates is None) == (length is None):
        raise InputError(
            f"{where}: rejection_sample_method is synthetic; expected one of "
            "synthetic_acceptance_rates, synthetic_acceptance_length"
        )
    if drafts is None:
        raise InputError(f"{where}: expected num_speculative_tokens with synthetic")
    numbers = [length] if rates is None else rates
    is_list = isinstance(numbers, list)
    if not is_list or not all(
        isinstance(x, int | float) and not isinstance(x, bool) for x in numbers
    ):
        raise InputError(
            f"{where}: synthetic acceptance is {numbers}; expected numbers"
        )
    if rates is None:
        assert length is not None
        return rates_of_length(float(length), drafts)
    if len(rates) != drafts:
        raise InputError(
            f"{where}: {len(rates)} synthetic_acceptance_rates; expected {drafts}, "
            "one for each drafted token"
        )
    check_rates(tuple(map(float, rates)), f"{where}: synthetic_acceptance_rates")
    return tuple(map(float, rates))


def acceptance_of(
    config: SpeculativeConfig, given: tuple[float, ...] | None, llm: Architecture | None
) -> tuple[tuple[float, ...], Acceptance | None]:
    """Return the rates of all drafts, and the table that they are of, if one."""
    drafts = config.drafts or SEARCHED[-1]
    if config.rates is not None:
        if given is not None:
            raise InputError(
                "acceptance_rates and synthetic acceptance are both given; expected "
                "one of them"
            )
        return config.rates, None
    if given is not None:
        check_rates(given, "--acceptance-rates")
        if len(given) < drafts:
            raise InputError(
                f"--acceptance-rates has {len(given)} rates; expected {drafts}, one "
                "for each drafted token"
            )
        return given[:drafts], None
    name = "" if llm is None else llm.name
    table = measured_acceptance(name, config.method, drafts)
    if table is None:
        whose = f"of {name} with {config.method}" if name else "without an LLM"
        raise InputError(
            f"no acceptance {whose} was measured; give --acceptance-rates r1,r2,...: "
            "how often the first, the first two, ... drafted tokens are all accepted "
            "(it is never fitted)"
        )
    return table.rates, table


def speculating(
    engine: EngineSettings, settings: Asked, llm: Architecture | None
) -> EngineSettings:
    """Return an engine with the speculative decoding of the settings."""
    if settings.speculative_config is None:
        return engine
    config = parse_speculative_config(settings.speculative_config)
    if llm is not None and config.method == "mtp" and _lacks_mtp_layer(llm):
        raise InputError(
            f"{llm.name} has no layer for multi-token prediction; expected method "
            "eagle3 or ngram with --acceptance-rates, or an LLM with one (DeepSeek-V3 "
            "and R1, GLM-4.5 and later, Qwen3.5, Qwen3-Next)"
        )
    rates, table = acceptance_of(config, settings.acceptance_rates, llm)
    if config.drafts is None:
        raise InputError(
            "--speculative-config has no num_speculative_tokens; expected one, but "
            "in a plan, which searches 0 to 3"
        )
    share = 0.0
    if config.method not in WITHOUT_KV and settings.draft_ms is None:
        if llm is None:
            raise InputError(
                "no LLM, so that the time of a draft is not known; give --draft-ms MS "
                "of each drafted token"
            )
        share = draft_share(llm, config.method, llm.weight_dtype)
    source = how = "given"
    if table is not None:
        source, how = table.source, "measured" if table.is_own else "assumed"
        if not table.is_own:
            source += f", the most cautious of its family, not {_name(llm)}"
    speculation = Speculation(
        config.method,
        rates,
        draft_share=share,
        draft_s=(settings.draft_ms or 0.0) / 1e3,
        source=source,
        how=how,
    )
    engine = replace(engine, speculation=speculation)
    _warn_of_budget(engine, speculation)
    return engine


def _name(llm: Architecture | None) -> str:
    return "" if llm is None else llm.name


def _lacks_mtp_layer(llm: Architecture) -> bool:
    """Return whether no checkpoint of a listed LLM has the layer."""
    return llm.name in llm_names() and not has_mtp_layer(llm.name)


def _warn_of_budget(engine: EngineSettings, speculation: Speculation) -> None:
    tokens = engine.max_num_seqs * speculation.verified_tokens
    if tokens > engine.max_num_batched_tokens:
        warn(
            f"{engine.max_num_seqs} seats verify {tokens:,} tokens and "
            f"max_num_batched_tokens is {engine.max_num_batched_tokens:,}: in a full "
            "batch requests sit out; expected max_num_seqs of at most "
            f"{engine.max_num_batched_tokens // speculation.verified_tokens:,}"
        )


def is_searched(settings: SpeculationSettings) -> bool:
    """Return whether a plan is to find the number of drafted tokens."""
    if settings.speculative_config is None:
        return False
    return parse_speculative_config(settings.speculative_config).drafts is None


def with_drafts(settings: Drafting, drafts: int) -> Drafting:
    """Return the settings with a number of drafted tokens; of 0 without any."""
    assert settings.speculative_config is not None
    if drafts == 0:
        given = dict.fromkeys(("speculative_config", "acceptance_rates", "draft_ms"))
        return settings.model_copy(update=given)
    config = parse_speculative_config(settings.speculative_config)
    return settings.model_copy(update={"speculative_config": config.launched(drafts)})


def accepting(configuration: Configuration, times: float) -> Configuration:
    """Return a replica of which each rate of acceptance is so many times as high."""
    engine = configuration.engine
    assert engine.speculation is not None
    speculation = engine.speculation.accepting(times)
    return replace(configuration, engine=replace(engine, speculation=speculation))
