"""What is said of an engine, and what the command that starts it is made of."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from capplan.fleet.gpu import Gpu
from capplan.llm.architecture import Architecture
from capplan.llm.layout import Layout

DEFAULT_UTILIZATION = 0.92
"""Share of GPU memory that vLLM takes (``gpu_memory_utilization``)."""

Options = Mapping[str, object]
"""Values by flag, in order; True: the flag alone, None or False: left out."""


class Defaults(NamedTuple):
    """What an engine takes where nobody says otherwise."""

    settings: dict[str, int]  # fields of ``EngineSettings``
    memory_share: float = DEFAULT_UTILIZATION  # of its own flag for memory


class Taken(NamedTuple):
    """Memory of one GPU that is not KV, and the share that an engine is told."""

    memory_bytes: int
    share: float
    weight_bytes: int
    rest_bytes: int  # all but KV, the weights among it
    context_bytes: int  # taken before the engine loads


@dataclass(frozen=True)
class Start:
    """What one replica is started with, which each engine says in its own words."""

    engine: Any  # its settings, as in ``deployment/engine.py``
    layout: Layout
    llm: Architecture
    memory_share: float
    kv_dtype: str  # that it is to be told; empty: the checkpoint's own
    prefix_caching: bool
    serve_flags: Options  # that the checkpoint needs
    max_model_len: int | None  # None: the checkpoint's own [tokens]
    block_size: int | None  # as given [tokens]
    kv_blocks: int | None  # as given
    nodes: int = 1  # that the replica spans
    all_to_all: str = ""  # as given
    eplb: bool = False
    eplb_config: str | None = None
    drafting: str = ""  # JSON of vLLM's ``--speculative-config``
    hand_off: str = ""  # of disaggregated prefill and decode
    is_filled: bool = False  # the computed KV limits the longest request


Overheads = Callable[[Architecture, Layout, int, int], tuple[int, int, int]]


@dataclass(frozen=True)
class Engine:
    """All that the name of an engine means."""

    name: str  # as in settings and files
    title: str  # as its makers write it
    version: str  # whose scheduling rules are simulated
    schedulers: Mapping[str, str]  # that it runs, its own first, and how it is told
    source: str  # of the defaults
    # by GPU, LLM, TP and the token budget where it is given
    defaults: Callable[[Gpu, Architecture | None, int, int | None], Defaults]
    share_of: str  # what the share of memory is of, and for what
    kv_bytes: Callable[[Taken], int]
    start: tuple[str, ...]  # words before the checkpoint
    options: Callable[[Start], Options]
    exchange: str  # all-to-all of experts by default, in its own words
    notes: Callable[[Start], tuple[str, ...]] = lambda start: ()
    starts_stages: bool = False  # capplan writes the command of pipelines too
    unwritten: Callable[[Start], str] = lambda start: ""  # why no command is made
    # dtypes with which it quantizes a 16-bit checkpoint, by ours
    quantizes: Mapping[str, str] = field(default_factory=dict)
    takes_share: bool = False  # the share is of all that the engine takes
    # bytes of activations, runtime and all-reduce, where they are not as vLLM's:
    # by LLM, layout, token budget and memory of the GPU
    overheads: Overheads | None = None
    # most requests at once by KV, longest context and token budget [tokens]
    seats: Callable[[int, int, int], int] | None = None
    balance: str = "vllm"  # how a rank is chosen for a request
    mark: str = ""  # in other tools' names of it; empty: its name
    since: Mapping[str, str] = field(default_factory=dict)  # first release of a flag
    drafts_since: Mapping[str, str] = field(default_factory=dict)  # and of a method

    @property
    def scheduler(self) -> str:
        """The scheduler that is its own."""
        return next(iter(self.schedulers))


def above_one(degree: int) -> int | None:
    """Return a degree that is to be told; 1 is none."""
    return degree if degree > 1 else None
