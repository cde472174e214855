"""Views of a fleet for the tests of autoscalers, and what is known of it."""

import math

import numpy as np

from capplan.simulator.autoscalers import Known, View, parse_autoscaler, start

KNOWN = Known(
    rate_per_replica_per_s=2.0,
    arrival_s=np.arange(0.0, 7200.0, 0.25),
    cold_start_s=60.0,
    in_flight_per_replica=25.0,
    max_num_batched_tokens=2048,
    max_num_seqs=256,
)
"""A replica serves 2 requests/s with 25 in flight; 4 come each second for two hours."""


def view(
    ready=1,
    starting=0,
    *,
    now_s=0.0,
    running=0,
    waiting=0,
    kv_share=0.0,
    freeness=None,
    total_blocks=1000,
    draining=0,
    held=0,
    arrived=0,
    prompt_tokens=100,
    output_tokens=50,
    finished=0,
    since_s=15.0,
):
    """Return a view; a number stands for that of each replica."""
    running = np.broadcast_to(np.asarray(running, np.int64), ready)
    waiting = np.broadcast_to(np.asarray(waiting, np.int64), ready)
    kv_share = np.broadcast_to(np.asarray(kv_share, np.float64), ready)
    requests = running + (waiting > 0)
    if freeness is None:
        free = total_blocks * (1 - kv_share)
        freeness = np.where(requests > 0, free / np.maximum(requests, 1), math.inf)
    return View(
        now_s,
        ready,
        starting,
        draining,
        running,
        waiting,
        kv_share,
        np.broadcast_to(np.asarray(freeness, np.float64), ready),
        total_blocks,
        held,
        arrived,
        arrived * prompt_tokens,
        arrived * output_tokens,
        finished,
        since_s,
    )


def decider(given, known=KNOWN):
    """Return a fresh decider of ``NAME:setting=number,...``."""
    return start(parse_autoscaler(given), known)


def counts(given, views, known=KNOWN):
    """Return what a fresh decider wants at each view."""
    decide = decider(given, known)
    return [decide(one) for one in views]


class Instant:
    """A fleet whose replicas are ready and gone at once, tick after tick."""

    def __init__(self, given, replicas, period_s=15.0, known=KNOWN):
        self.decide = decider(given, known)
        self.replicas, self.period_s, self.now_s = replicas, period_s, 0.0

    def tick(self, **seen):
        """Return the count after a tick at which the fleet looks so."""
        seen.setdefault("since_s", self.period_s)
        self.replicas = self.decide(view(self.replicas, now_s=self.now_s, **seen))
        self.now_s += self.period_s
        return self.replicas

    def ticks(self, n, **seen):
        """Return the counts after n ticks."""
        return [self.tick(**seen) for _ in range(n)]
