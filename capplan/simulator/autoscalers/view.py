"""What an autoscaler sees at a tick, and what it knows from the start."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np


class View(NamedTuple):
    """The fleet at a tick.

    Arrays have a value for each replica that takes requests, shape (ready,).
    """

    now_s: float
    ready: int  # replicas that take requests
    starting: int  # replicas that were ordered and do not take requests yet
    draining: int  # replicas that take no more requests and are not empty yet
    running: np.ndarray  # requests running on each [requests]
    waiting: np.ndarray  # requests waiting on each [requests]
    kv_share: np.ndarray  # share of its KV blocks in use
    freeness: np.ndarray  # Llumnix's, inf where nothing runs or waits [blocks/request]
    total_blocks: int  # KV blocks of one replica
    held: int  # requests that wait since no replica is ready
    arrived: int  # requests that reached the router since the last tick
    arrived_prompt_tokens: int
    arrived_output_tokens: int  # as predicted
    finished: int  # requests answered since the last tick
    since_s: float  # time since the last tick [s]


Decide = Callable[[View], int]
"""Returns how many replicas are wanted: those ready and those starting."""


@dataclass(frozen=True, eq=False)
class Known:
    """What is known when an autoscaler starts; NaN or 0 where it is not known."""

    rate_per_replica_per_s: float = math.nan  # largest within the SLO [requests/s]
    arrival_s: np.ndarray = field(default_factory=lambda: np.empty(0))  # of all [s]
    start_s: float = 0.0  # start of the trace [s]
    replicas: int = 1  # at the start
    cold_start_s: float = 0.0
    in_flight_per_replica: float = math.nan  # running and waiting at that rate
    block_size: int = 16  # tokens of a KV block
    max_num_batched_tokens: int = 0
    max_num_seqs: int = 0
