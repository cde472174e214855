"""Aladdin's heartbeat step by step: Algorithms 1 and 2 and the groups of Eq. 8.

Nie et al., arXiv:2405.06856, sections 4.2, 4.3 and appendix A.
"""

import math
from statistics import fmean
from typing import NamedTuple

import judge_best_fit
from judge_best_fit import known, outstanding

_ROUNDING = 1e-9


class Aladdin(NamedTuple):
    """Settings of the heartbeat."""

    beat_s: float = 1.0
    waste: float = 0.0  # e of Eq. 8; 0: one scheduler
    rebalances: bool = True


class Dispatcher:
    """Who waits for the heartbeat, and what was wrong since the last one."""

    def __init__(self, settings, trace, slo) -> None:
        self.settings, self.slo = settings, slo
        self.past = list(
            zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True)
        )
        self.upper = _bins(sorted(prompt for prompt, _ in self.past))
        self.early = {}  # by replica: requests that ended before their prediction
        self.turns = ([], {})  # of groups of these sizes: their credit
        self.moved = self.placed = 0

    def finished(self, replica, request) -> None:
        if request.output_count < request.predicted_count:
            self.early.setdefault(replica, []).append(request)

    def place(self, new, replicas, now_s):
        """Return the replica of each new request, in order."""
        groups = split(replicas, group_count(len(replicas), self.settings.waste))
        chosen, group_of = [], []
        waiting = {replica: list(replica.waiting) for replica in replicas}
        for request in new:
            group = groups[self._turn([len(group) for group in groups])]
            place = judge_best_fit.best_fit(group, 0, None, request, now_s, self.slo)
            chosen.append(group[place])
            group_of.append(group)
            group[place].waiting.append(request)
        if self.settings.rebalances:
            lines = {replica: self._line(replica) for replica in replicas}
        for replica in replicas:
            replica.waiting.clear()
            replica.waiting.extend(waiting[replica])
        if self.settings.rebalances:
            for group in groups:
                rows = [k for k in range(len(new)) if group_of[k] is group]
                moved = cancel(
                    [lines[replica] for replica in group],
                    [group.index(chosen[k]) for k in rows],
                    [new[k].predicted_count for k in rows],
                )
                for k, place in zip(rows, moved, strict=True):
                    self.moved += group[place] is not chosen[k]
                    chosen[k] = group[place]
        self.early = {}
        self.placed += len(new)
        return chosen

    def _turn(self, sizes):
        """Smooth weighted round-robin."""
        if self.turns[0] != sizes:
            self.turns = (sizes, [0] * len(sizes))
        credit = self.turns[1]
        for group, size in enumerate(sizes):
            credit[group] += size
        best = credit.index(max(credit))
        credit[best] -= sum(sizes)
        return best

    def _line(self, replica):
        """Alpha, beta and the errors of a replica, with what was just placed."""
        tokens, requests = 0.0, 0
        for request in outstanding(replica):
            generated = known(replica, request) - request.prompt_count
            if generated > request.predicted_count:
                tokens += self.again(request)
                requests += 1
        for request in self.early.get(replica, []):
            tokens += request.output_count - request.predicted_count
            requests -= 1
        last = replica.engine.max_num_seqs
        here = min(max(len(outstanding(replica)), 1), last)
        low, high = max(here - 1, 1), min(here + 1, last)
        rise_s = replica.tables.decode_s[high] - replica.tables.decode_s[low]
        beta = max(0.0, rise_s / max(1, high - low))
        return replica.tables.decode_context_s[here], beta, tokens, requests

    def again(self, request):
        """Mean of the past outputs above the prediction, of prompts as long."""
        alike = _bin(self.upper, request.prompt_count)
        longer = [
            output
            for prompt, output in self.past
            if _bin(self.upper, prompt) == alike and output > request.predicted_count
        ]
        return fmean(longer) if longer else request.predicted_count + 1


def _bins(prompts):
    """Longest prompts of bins of at least 100, as many as 64."""
    count = min(max(len(prompts) // 100, 1), 64)
    upper = {prompts[math.ceil(k * len(prompts) / count) - 1] for k in range(1, count)}
    return sorted(tokens for tokens in upper if tokens < prompts[-1])


def _bin(upper, prompt):
    return sum(prompt > tokens for tokens in upper)


def group_count(replicas, waste):
    """Eq. 8: each group has at least 1 / (2 e) workers."""
    count = 1
    while waste and (count + 1) / (2 * waste) <= replicas + 1e-9:
        count += 1
    return count


def split(replicas, count):
    """Groups of equal size; the first ones have one more."""
    groups, rest = [], list(replicas)
    for left in range(count, 0, -1):
        size = math.ceil(len(rest) / left)
        groups.append(rest[:size])
        rest = rest[size:]
    return groups


def cancel(lines, chosen, predicted):
    """Algorithm 2: return the new place of each request.

    ``lines`` are alpha, beta, l^e and b^e of each worker.
    """
    scale = [math.hypot(alpha, beta) or 1.0 for alpha, beta, _, _ in lines]
    signed = [
        (alpha * tokens + beta * requests) / length
        for (alpha, beta, tokens, requests), length in zip(lines, scale, strict=True)
    ]
    chosen = list(chosen)
    for k in sorted(range(len(chosen)), key=lambda k: -predicted[k]):
        x, y = chosen[k], signed.index(min(signed))
        if signed[x] <= 0 or x == y:
            continue
        step = [
            (alpha * predicted[k] + beta) / length
            for (alpha, beta, _, _), length in zip(lines, scale, strict=True)
        ]
        after = signed[x] - step[x], signed[y] + step[y]
        before = abs(signed[x]) + abs(signed[y])
        if abs(after[0]) + abs(after[1]) < before * (1 - _ROUNDING):
            signed[x], signed[y] = after
            chosen[k] = y
    return chosen
