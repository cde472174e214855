"""Groups of ranks that come, close and die, for the judge: a group is one replica.

``judge_group.py`` says what a group does. Its death takes all its ranks with what is in
flight; their requests reach the router again in order of their rows.
"""

import numpy as np
from judge_fleet import Event
from judge_fleet_replica import FleetRequest
from judge_group import Group
from judge_request import request_of


class GroupFleet:
    """Groups behind a router that takes the one with the fewest requests."""

    def __init__(self, tables, graphs, engine, count, seed):
        self.given = tables, graphs, engine, "vllm-v1"
        self.seed = seed
        self.groups, self.open, self.held = [], [], []
        self.lost = 0
        self.bring_up(count)

    def bring_up(self, count):
        for _ in range(count):
            group = Group(*self.given, len(self.groups), self.seed)
            self.groups.append(group)
            self.open.append(group)

    def route(self, request, now_s):
        if not self.open:
            self.held.append(request)
            return
        counts = [group.outstanding for group in self.open]
        self.open[counts.index(min(counts))].arrive(request, now_s)

    def change(self, events, now_s):
        """Let all changes of a moment happen, then route whom they concern."""
        reach = []
        for event in events:
            if event.kind == "up":
                self.bring_up(event.count)
                reach = [*self.held, *reach]
                self.held = []
                continue
            kept = max(0, len(self.open) - event.count)
            gone = self.open[kept:]
            del self.open[kept:]
            if event.kind == "fail":
                for dead in gone:
                    reach += self.requests_of(dead)
        for request in reach:
            self.route(request, now_s)

    def requests_of(self, dead):
        """Return the requests of a group that has died, without their KV."""
        self.groups.remove(dead)
        found = []
        for rank in dead.ranks:
            for request in [*rank.running, *rank.waiting]:
                request.preemptions += request in rank.running
                found.append(request)
        for request in found:
            request.forget()
        self.lost += len(found)
        return sorted(found, key=lambda request: request.row)


def judge_groups_in_motion(trace, tables, graphs, engine, count, events, seed=0):
    """Serve a trace step by step; return the requests, and how many began again."""
    fleet = GroupFleet(tables, graphs, engine, count, seed)
    requests = []
    known = [(event.time_s, 0, k, event) for k, event in enumerate(events)]
    for row in range(len(trace)):
        request = request_of(trace, row, kind=FleetRequest)
        requests.append(request)
        moment_s = request.arrival_s + tables.rank.request_s
        known.append((moment_s, 1, row, request))
    known.sort(key=lambda each: each[:3])
    while known:
        now_s = known[0][0]
        for group in fleet.groups:
            group.advance(now_s)
        changes = []
        while known and known[0][0] == now_s and isinstance(known[0][3], Event):
            changes.append(known.pop(0)[3])
        if changes:
            fleet.change(changes, now_s)
        else:
            fleet.route(known.pop(0)[3], now_s)
    for group in fleet.groups:
        group.advance(np.inf)
    return requests, fleet.lost
