"""Replicas that verify drafts in a fleet in motion, for the judge.

``judge_speculative.py`` says what an iteration does, ``judge_fleet_replica.py`` when
it is done. A request that moves goes on with its drawn iterations; one whose replica
died draws on from the last whose result it was given.
"""

from dataclasses import dataclass

import judge_speculative
from judge_fleet_replica import FleetReplica, FleetRequest


@dataclass(eq=False)
class SpeculativeFleetRequest(FleetRequest, judge_speculative.Request):
    """A request whose drafts are verified, and that may change its replica."""

    known_before: int = 0  # tokens known then, those in flight included

    def forget(self):
        """Lose the KV and the results in flight; delivered tokens stay."""
        if self.verifies:
            self.drawn += self.collected
        elif self.stale:
            # None where it was preempted once more, in its prompt.
            self.drawn -= max(0, self.ran_before - self.collected)
        super().forget()
        self.slots = self.ran = self.collected = self.padding = 0
        self.verifies = False


class SpeculativeFleetReplica(judge_speculative.Replica, FleetReplica):
    """An engine of a fleet that verifies drafts."""

    def __init__(self, tables, engine, index, seed, slo):
        super().__init__(tables, engine, index, seed, line=True)
        self.slo = slo
        self.schedule_next = type(self).next_parts

    schedule = FleetReplica.schedule

    def next_parts(self, settings):
        """Return the parts of the next iteration, and whether it preempted."""
        goes_on = any(
            not each.verifies and each.computed < len(each.tokens)
            for each in self.running
        )
        parts, budget, preempted = self.going_on()
        if not preempted:
            parts += self.admissions(budget, parts != [], goes_on)
        return parts, preempted

    def started(self, parts):
        return parts

    def part(self, request, new):
        made = super().part(request, new)
        if request.verifies:
            request.computed = request.kv_tokens(request.ran, self.line)
        return made

    def known(self, request):
        """Return prompt and generated tokens, those in flight included."""
        known = len(request.tokens)
        if request.verifies:
            known = request.kv_tokens(request.ran, self.line) + 1
        elif request.stale:
            known = request.known_before
        return min(known, request.last_count)

    def preempt(self, request):
        request.known_before = self.known(request)
        super().preempt(request)
        self.preempted += 1

    def touch(self, now_s):
        """Wake up; what is computed and discarded alone is waited for."""
        while self.in_flight and not self.has_work:
            self.collect(self.in_flight.popleft())
        super().touch(now_s)

    def take_in(self, request):
        """Let a request run that has joined, with KV of all that it computed."""
        request.slots, request.padding = request.computed, 0

    def take_back_in(self, request):
        super().take_back_in(request)
        request.drawn += request.ran
        request.slots = request.ran = request.padding = 0
        request.verifies = False
