"""The command that starts the engine of a configuration, as it was planned."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.engines.catalog import ENGINES, VLLM
from capplan.engines.engine import DEFAULT_UTILIZATION, Engine, Options, Start
from capplan.errors import InputError
from capplan.llm.catalog import llm as find_llm
from capplan.llm.catalog import published
from capplan.llm.dtypes import UNQUANTIZED
from capplan.planning.configure.scheduling import engine_of, scheduling
from capplan.planning.configure.speculation import parse_speculative_config
from capplan.planning.settings.asked import Asked, asked
from capplan.planning.settings.groups import ConfigurationSettings

YOURS = "YOUR_CHECKPOINT"
"""Stands for a checkpoint that nobody has published."""
_FLAG = re.compile(r"--[a-z][a-z0-9_-]*")


@dataclass(frozen=True)
class Launch:
    """How to start one replica."""

    words: tuple[str, ...]  # the command and its arguments; empty where there is none
    notes: tuple[str, ...] = ()  # what to know before, or why there is no command

    @property
    def line(self) -> str:
        """The command on one line, quoted for a shell."""
        return shlex.join(self.words)

    @property
    def engine(self) -> Engine | None:
        """The engine that it starts; None where there is no command."""
        rows = ENGINES.values()
        return next((x for x in rows if self.words[: len(x.start)] == x.start), None)

    @property
    def _flags_at(self) -> int:
        return 1 + (0 if self.engine is None else len(self.engine.start))

    @property
    def checkpoint(self) -> str:
        """The checkpoint that it serves; empty where there is no command."""
        return self.words[self._flags_at - 1] if self.words else ""

    @property
    def flags(self) -> dict[str, str | None]:
        """The flags with their values; None: a flag without one."""
        return _flags(self.words[self._flags_at :])

    @property
    def arguments(self) -> dict[str, Any]:
        """The flags as vLLM's engine arguments, with the types that JSON has.

        Examples
        --------
        >>> words = "vllm serve org/llm --max-num-seqs 8 --no-async-scheduling".split()
        >>> Launch(tuple(words)).arguments
        {'max_num_seqs': 8, 'async_scheduling': False}
        """
        found: dict[str, Any] = {}
        for flag, text in self.flags.items():
            name = flag.removeprefix("--").replace("-", "_")
            if text is None:
                found[name.removeprefix("no_")] = not name.startswith("no_")
                continue
            try:
                found[name] = json.loads(text)
            except ValueError:
                found[name] = text
        return found

    def across(self, node_count: str, rank: str, leader: str) -> "Launch":
        """Return the command of one node of a replica that spans several.

        The words may be variables. All but the first, of rank 0, answer no requests.
        """
        more = ("--nnodes", node_count, "--node-rank", rank, "--master-addr", leader)
        return Launch((*self.words, *more), self.notes)

    def serving(self, checkpoint: str) -> "Launch":
        """Return the command for another checkpoint of the same LLM."""
        words = list(self.words)
        words[self._flags_at - 1] = checkpoint
        return Launch(tuple(words), self.notes)

    def without(self, *flags: str) -> "Launch":
        """Return the command without some flags and their values."""
        kept = {flag: x for flag, x in self.flags.items() if flag not in flags}
        before = self.words[: self._flags_at]
        return Launch((*before, *_words(_told(kept))), self.notes)


def read_launch(line: str, notes: tuple[str, ...] = ()) -> Launch:
    """Return the command that a launch line holds."""
    try:
        words = tuple(shlex.split(line))
    except ValueError as error:
        raise InputError(f"the launch line {line!r}: {error}") from None
    found = Launch(words, notes)
    at = found._flags_at - 1
    ended = found.engine is None or len(words) <= at or words[at].startswith("-")
    is_flag = False
    for word in words[at + 1 :]:
        if word.startswith("--"):
            ended |= not _FLAG.fullmatch(word)
            is_flag = True
        else:
            ended |= not is_flag
            is_flag = False
    if ended or not all(word.isprintable() for word in words):
        raise InputError(
            f"the launch line {line!r} is not vllm serve CHECKPOINT and flags, nor "
            "that of another engine"
        )
    return found


def _flags(words: Sequence[str]) -> dict[str, str | None]:
    """Return flags with their values; None: a flag without one."""
    flags: dict[str, str | None] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name = word
            flags[name] = None
        else:
            flags[name] = word
    return flags


def _told(flags: Mapping[str, str | None]) -> Options:
    return {name: True if text is None else text for name, text in flags.items()}


def _words(options: Options) -> tuple[str, ...]:
    """Return flags and values as words; those left out have none."""
    words: list[str] = []
    for flag, value in options.items():
        if value is not None and value is not False:
            words += [flag] if value is True else [flag, str(value)]
    return tuple(words)


def launch(
    configuration: Configuration, settings: ConfigurationSettings, hand_off: str = ""
) -> Launch | None:
    """Return how to start a replica; None where no LLM was named.

    Every setting that the plan rests on is given, also where it is the engine's
    default, which differs by version and GPU. ``hand_off`` is that of disaggregated
    prefill and decode.
    """
    settings = asked(settings)
    if settings.llm is None:
        return None
    row, engine = engine_of(settings), configuration.engine
    if engine.scheduler.name not in row.schedulers:
        why = f"{scheduling(engine)}; no vllm serve command: vLLM does not"
        return Launch((), (why,))
    checkpoint, flags, notes = _checkpoint(settings.llm, row)
    start = _start(configuration, settings, hand_off, _told(_flags(flags)))
    if start.layout.pp > 1 and not row.starts_stages:
        return Launch((), ("stages: capplan writes their command for vLLM alone",))
    if why := row.unwritten(start):
        return Launch((), (why,))
    other = ENGINES.get(configuration.times_of.partition(" ")[0], row)
    if row is VLLM and other is not VLLM:
        why = (
            f"planned with the times of {other.title}: vllm serve starts "
            f"another; --engine {other.name} plans that one"
        )
        if settings.engine is not None:
            return Launch((), (why,))
        notes = (*notes, why)
    words = (*row.start, checkpoint, *_words(row.options(start)))
    return Launch(words, (*notes, *row.notes(start)))


def _start(
    configuration: Configuration, settings: Asked, hand_off: str, serve_flags: Options
) -> Start:
    """Return what the command of a configuration is made of."""
    engine, replica = configuration.engine, configuration.replica
    share = settings.gpu_memory_utilization or DEFAULT_UTILIZATION
    has_length = engine.max_model_len < EngineSettings().max_model_len
    drafts = ""
    if engine.speculation is not None:
        config = parse_speculative_config(settings.speculative_config or "")
        drafts = config.launched(engine.speculation.drafts)
    return Start(
        engine,
        configuration.layout,
        find_llm(str(settings.llm)),
        share if replica is None else replica.budget.utilization,
        _kv_dtype_told(configuration, settings),
        engine.prefix_caching or configuration.caching_unused,
        serve_flags,
        max_model_len=engine.max_model_len if has_length else None,
        block_size=settings.block_size,
        kv_blocks=settings.kv_blocks,
        nodes=configuration.nodes_per_replica,
        all_to_all=configuration.all_to_all,
        eplb=settings.enable_eplb,
        eplb_config=settings.eplb_config,
        drafting=drafts,
        hand_off=hand_off,
        is_filled=_is_filled(configuration),
    )


def _kv_dtype_told(
    configuration: Configuration, settings: ConfigurationSettings
) -> str:
    """Return the KV's dtype that an engine is to be told; empty: the checkpoint's own.

    The checkpoint's own is FP8 in some that are quantized.
    """
    kv_dtype = configuration.kv_dtype or settings.kv_cache_dtype
    llm = find_llm(str(settings.llm))
    is_own = kv_dtype in UNQUANTIZED and llm.weight_dtype in UNQUANTIZED
    return "" if is_own else kv_dtype


def _checkpoint(
    name: str, engine: Engine
) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Return the checkpoint to serve, the flags that it needs, and notes."""
    entry, dtype = published(name), find_llm(name).weight_dtype
    if entry is None:  # a folder
        return name, (), ()
    if "/" in name:  # the repository that the user serves
        return name, entry.serve_flags, ()
    notes: tuple[str, ...] = ()
    if not entry.is_named:
        notes = (f"{name} is planned as {entry.llm}; serve your checkpoint of it",)
    if dtype in entry.checkpoints:
        return entry.checkpoints[dtype], entry.serve_flags, notes
    own = next(
        (entry.checkpoints[x] for x in UNQUANTIZED if x in entry.checkpoints), ""
    )
    if own and (kind := engine.quantizes.get(dtype)):
        flags = (*entry.serve_flags, "--quantization", kind)
        return own, flags, notes
    missing = f"no checkpoint of {entry.llm} in {dtype} is listed; name yours"
    return YOURS, entry.serve_flags, (missing,)


def _is_filled(configuration: Configuration) -> bool:
    """Return whether the computed KV, not the LLM, limits the longest request."""
    engine, replica = configuration.engine, configuration.replica
    if replica is None or replica.kv_source != "estimated":
        return False
    return engine.max_model_len < replica.llm.max_positions
