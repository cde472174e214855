"""Adapters of a replica, in slots of its GPUs and in host memory."""

from capplan.deployment.adapters import Adapters


class Row:
    """Room for an adapter in host memory."""

    adapter: int | None = None
    used = 0  # step
    in_slot = False


class Loras:
    """Slots for adapters and host memory: the row used longest ago goes first."""

    def __init__(self, adapters: Adapters) -> None:
        self.costs = adapters
        self.slots = adapters.max_loras
        self.host = [Row() for _ in range(adapters.max_cpu_loras)]

    def load_s(self, adapter: int, step: int) -> float:
        """Use an adapter in this step; return how long that takes to load. [s]"""
        load_s = 0.0
        row = next((row for row in self.host if row.adapter == adapter), None)
        if row is None:
            row = min(self.host, key=lambda row: row.used)
            row.adapter, row.in_slot = adapter, False
            load_s += self.costs.fetch_s
        if not row.in_slot:
            loaded = [row for row in self.host if row.in_slot]
            if len(loaded) == self.slots:
                min(loaded, key=lambda row: row.used).in_slot = False
            row.in_slot = True
            load_s += self.costs.load_s
        row.used = step
        return load_s
