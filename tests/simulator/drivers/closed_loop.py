"""Users who wait for their answer, think, and ask again: a driver of one pool.

The next known event is delivered if it is not after any replica's ``wake_s``, the time
before which no answer can come from it; else the replica that may answer first takes
one step. A replica's own pending answer bounds its jump: with two iterations in flight
the one after next is scheduled at the instant at which an answer may bring a request.
"""

import heapq
import math

import numpy as np

from tests.simulator.drivers.doors import Pool, Request


def serve(deployment, lengths, users, think_s):
    """Return arrivals and finishes of the requests in order of arrival, both lists. [s]

    Request k has ``lengths[k]`` tokens, prompt and output, and ``think_s[k]`` of its
    user's time before it: since time 0, or since the user's last answer.
    """
    pool = Pool(deployment)
    events = [(think_s[k], k) for k in range(min(users, len(lengths)))]
    heapq.heapify(events)
    asked = len(events)
    arrival_s, finish_s = [], {}
    while events or pool.replicas["outstanding"].sum() > 0:
        known_s = events[0][0] if events else math.inf
        wakes = pool.replicas["wake_s"]
        r = int(wakes.argmin())
        if known_s <= wakes[r]:
            now_s, k = heapq.heappop(events)
            for i in range(len(wakes)):  # no answer can come on the way
                while pool.next_s(i) < now_s:
                    pool.step(i, now_s)
            pool.arrive(Request(len(arrival_s), *lengths[k]), now_s)
            arrival_s.append((now_s, lengths[k]))
            continue
        others_s = np.delete(wakes, r).min(initial=math.inf)
        went, done = pool.step(r, min(known_s, others_s, pool.pending_s(r)))
        assert went
        for result in done:
            finish_s[int(result["row"])] = float(result["finish_s"])
            if asked < len(lengths):
                heapq.heappush(events, (result["finish_s"] + think_s[asked], asked))
                asked += 1
    return arrival_s, [finish_s[row] for row in range(len(arrival_s))]
