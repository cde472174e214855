"""vLLM V1 with LoRA adapters, one iteration at a time: judges ``vllm_v1_lora``.

Slots and host memory are rows in a list; the row used by the oldest iteration goes
first, the first of equals. An adapter that is not in host memory is read, and one
without a slot is loaded, before the iteration starts.
"""

import numpy as np
from judge import Batch, Replica, judge_own
from judge_schedulers import admitted, going_on


class Row:
    """Room for an adapter in host memory."""

    def __init__(self) -> None:
        self.adapter = None
        self.used = 0
        self.in_slot = False


class AdapterReplica(Replica):
    """One engine with adapters."""

    def __init__(self, tables, engine, trace):
        super().__init__(tables, engine, "vllm-v1")
        self.adapter = trace.adapter
        self.slots = engine.adapters.max_loras
        self.host = [Row() for _ in range(engine.adapters.max_cpu_loras)]
        self.schedulings = 0
        self.most = 0  # adapters of an iteration

    def adapters_of(self, parts):
        """Adapters of an iteration, in the order of its requests."""
        found = [int(self.adapter[request.row]) for request, _, _ in parts]
        return list(dict.fromkeys(each for each in found if each >= 0))

    def schedule(self):
        parts, budget, preempted = going_on(self)
        if not preempted:
            parts += self.from_queue(parts, budget)
        self.schedulings += 1
        if not parts:
            return Batch([], self.now_s)
        return Batch(self.started(parts), self.run(parts))

    def from_queue(self, running, budget):
        """Admit in order; skip requests whose adapter would be one too many."""
        parts, skipped = [], []
        while self.waiting and budget and self.seats_left > 0:
            request = self.waiting[0]
            together = self.adapters_of([*running, *parts, (request, 0, 0)])
            if request.stale or len(together) > self.slots:
                skipped.append(self.waiting.popleft())
                continue
            found = admitted(self, budget)
            if found is None:
                break
            parts += found
            budget -= sum(new for _, _, new in found)
        self.waiting.extendleft(reversed(skipped))
        return parts

    def run(self, parts):
        together, costs = self.adapters_of(parts), self.engine.adapters
        self.most = max(self.most, len(together))
        start_s = max(self.now_s, self.gpu_s)
        took_s = super().run(parts) - start_s
        if together:
            took_s = took_s * (1 + costs.slowdown) + len(together) * costs.read_s
        load_s = sum(map(self.use, together))
        self.gpu_s = start_s + load_s + took_s
        return self.gpu_s

    def use(self, adapter):
        """Use an adapter in this iteration; return how long that takes to load. [s]"""
        costs, load_s = self.engine.adapters, 0.0
        row = next((row for row in self.host if row.adapter == adapter), None)
        if row is None:
            row = min(self.host, key=lambda row: row.used)
            row.adapter, row.in_slot = adapter, False
            load_s += costs.fetch_s
        if not row.in_slot:
            if sum(row.in_slot for row in self.host) == self.slots:
                loaded = [row for row in self.host if row.in_slot]
                min(loaded, key=lambda row: row.used).in_slot = False
            row.in_slot = True
            load_s += costs.load_s
        row.used = self.schedulings
        return load_s


def judge_adapters(trace, tables, engine, replica_count):
    """Serve a trace step by step, by the shortest queue; return it and the replicas."""
    replicas = [AdapterReplica(tables, engine, trace) for _ in range(replica_count)]
    groups = np.column_stack([trace.prefix_group, trace.adapter])
    return judge_own(replicas, trace, groups)
