"""Record what vLLM's scheduler does where prefill and decode have own engines.

Run it as ``record.py``, with the same Python::

    python record_disaggregated.py OUT CASE.json [CASE.json ...]

The schedulers are vLLM's own, and so is the scheduler side of its NIXL connector
(blocks are pulled by the decode engine). Only the workers are played: a copy of n
blocks takes ``handshake_s + n*block_s`` seconds, one at a time out of a prefill engine
and into a decode engine.

A case is that of ``record.py`` without turns, by priority too, and

``prefill``, ``decode``
    Engines of each kind. Requests go to them in turn, by row. Without prefill engines,
    prompts are ready to be pulled when they arrive; without decode engines, blocks are
    read as soon as the link is free.
``threshold``
    Prompts with fewer tokens are computed by the decode engine.
``hop_s``
    Time from a prefill engine's token to the decode engine's queue.
``report``
    When the scheduler hears of a copy. ``end``: with the result of the first iteration
    that ends at or after the copy does. ``launch``: with that of the first iteration
    launched at or after it, as vLLM's workers do, which look at their copies right
    after launching a forward pass. An engine with nothing to run looks all the time.

At one instant, arrivals come first, then hand-offs and the ends of copies, then
engines, prefill engines first.
"""

import heapq
import json
import sys
import tempfile
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from record import Batch, Case, Recorder, scheduler, write
from vllm.config import KVTransferConfig
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import Request

ARRIVAL, COPY = 1, 2
NEVER = float("inf")
ROLE = {"p": "kv_producer", "d": "kv_consumer"}
READY_TO_PULL = {
    "do_remote_prefill": True,
    "do_remote_decode": False,
    "remote_block_ids": [[1]],
    "remote_engine_id": "p0",
    "remote_host": "localhost",
    "remote_port": 1,
    "tp_size": 1,
}
TO_BE_PULLED = {"do_remote_prefill": False, "do_remote_decode": True}
NOTHING_YET = {
    "first_sched_s": None,
    "first_token_s": None,
    "finish_s": None,
    "preemptions": 0,
    "cached_tokens": 0,
}


@dataclass(eq=False)
class Engine(Recorder):
    """One engine of a deployment, which goes on one step at a time."""

    name: str = ""
    site: Any = None
    in_flight: deque[Batch] = field(default_factory=deque)
    must_collect: bool = False
    idle: Batch | None = None  # the empty iteration after which it waits
    untold: list[tuple[float, str]] = field(default_factory=list)
    told: dict[str, float] = field(default_factory=dict)

    @property
    def depth(self) -> int:
        return 2 if self.case["async_sched"] else 1

    @property
    def next_s(self) -> float:
        """When it next schedules or collects. [s]"""
        if len(self.in_flight) == self.depth or self.must_collect:
            return max(self.now_s, self.in_flight[0].end_s)
        if self.scheduler.has_requests() and self.idle is None:
            return self.now_s
        return self.in_flight[0].end_s if self.in_flight else NEVER

    def step(self) -> None:
        """Schedule an iteration or collect one, as ``Recorder.run`` does."""
        full = len(self.in_flight) == self.depth or self.must_collect
        if full or not self.scheduler.has_requests():
            self.must_collect = False
            self.collect(self.in_flight.popleft())
            return
        before = sum(row["preemptions"] for row in self.rows.values())
        told = len(self.told)
        batch = self.schedule()
        preempted = sum(row["preemptions"] for row in self.rows.values()) - before
        self.site.pull(self, batch.output.kv_connector_metadata.reqs_to_recv)
        self.in_flight.append(batch)
        if not any(one.ends_prompt for one in self.in_flight):
            while self.in_flight:
                self.collect(self.in_flight.popleft())
            waits = not preempted and len(self.told) == told
            self.idle = batch if waits else None
            return
        ran = bool(batch.ends_prompt) or self.scheduler.has_requests()
        self.must_collect = len(self.in_flight) < self.depth and not ran

    def wake(self, moment_s: float) -> None:
        """Look again, since something came, a copy ended or blocks were read."""
        if self.next_s == NEVER:
            self.now_s = max(self.now_s, moment_s)
        if self.idle is not None:
            batch, self.idle = self.idle, None
            batch.sched_s = self.now_s
            self.collect(batch)

    def receive(self, index: int, output: int, transfer: dict[str, Any] | None) -> None:
        """Put a request at the back of the queue."""
        name = f"r{index}"
        self.rows[name] = dict(NOTHING_YET)
        self.wake(self.site.now_s)
        prompt, priority = self.site.prompts[index], self.site.priority(index)
        # No two come at one instant, of which their names would tell the order.
        moment_s = self.site.now_s + 1e-9 * len(self.rows)
        self.add(name, prompt, output, moment_s, priority, transfer)

    def decodes(self, one: Request, before: int, new: int) -> bool:
        """Count the last prompt token of a pulled request as a decode, too."""
        pulled = one.request_id in self.told and not one.num_preemptions
        return new == 1 and before >= one.num_prompt_tokens - pulled

    def note(self, *given: Any) -> float:
        end_s = super().note(*given)
        queues = self.scheduler
        holding = len(queues.kv_holding_waiting)
        living = len(queues.running) + len(queues.waiting) + holding
        row = self.iterations.pop()
        row["sched"] = row.pop("sched")
        held = len(queues.requests) - living
        self.iterations.append(
            {"engine": self.name, **row, "holding": holding, "held": held}
        )
        return end_s

    def copied(self, batch: Batch) -> KVConnectorOutput:
        """Tell which copies have ended."""
        by_end = self.case["report"] == "end"
        looked_s = self.now_s if by_end else batch.sched_s
        names = [name for end_s, name in self.untold if end_s <= looked_s]
        self.untold = [one for one in self.untold if one[1] not in names]
        self.told |= dict.fromkeys(names, self.now_s)
        prefills = self in self.site.prefill
        return KVConnectorOutput(
            finished_sending=names if prefills else None,
            finished_recving=None if prefills else names,
        )

    def finished(self, one: Any) -> None:
        if self in self.site.prefill:
            self.site.hand_off(self, int(one.request_id[1:]), one.kv_transfer_params)


class Deployment:
    """Engines, the links between them and what happens in which order."""

    def __init__(self, case: Case, folder: str) -> None:
        self.case = case
        self.now_s = 0.0
        self.made = 0
        self.rows: list[dict[str, Any]] = []
        self.prompts: list[list[int]] = []
        self.events: list[tuple[float, int, int, int, Callable[[], None]]] = []
        self.iterations: list[dict[str, Any]] = []
        rng = np.random.default_rng(case["seed"])
        self.prefill = self.started(folder, "p", case["prefill"], rng)
        self.decode = self.started(folder, "d", case["decode"], rng)
        self.engines = self.prefill + self.decode
        self.out_free_s = [0.0] * max(1, case["prefill"])
        self.in_free_s = [0.0] * max(1, case["decode"])
        drawn = Recorder(case, None, None)  # type: ignore[arg-type]
        for index, request in enumerate(case["requests"]):
            self.at(request[0], ARRIVAL, 0, lambda index=index: self.arrive(index))
            self.prompts.append(drawn.prompt(index))
            self.rows.append(self.row(index))

    def started(
        self, folder: str, kind: str, count: int, rng: np.random.Generator
    ) -> list[Engine]:
        """Return the engines of a pool."""
        case, hasher = self.case, None
        if case["prefix_caching"]:
            hasher = get_request_block_hasher(case["block_size"], sha256)
        engines = []
        for k in range(count):
            transfer = KVTransferConfig(
                kv_connector="NixlConnector",
                kv_role=case.get("kv_role", ROLE[kind]),
                engine_id=f"{kind}{k}",
            )
            engine = Engine(
                {**case, "requests": []},
                scheduler(case, folder, transfer),
                hasher,
                name=f"{kind}{k}",
                site=self,
                iterations=self.iterations,
            )
            engine.rng = rng
            engines.append(engine)
        return engines

    def row(self, index: int) -> dict[str, Any]:
        arrival_s, prompt, output, group, shared, *_ = self.case["requests"][index]
        remote = prompt >= self.case["threshold"]
        given = {
            "id": f"r{index}",
            "arrival_s": arrival_s,
            "prompt_len": prompt,
            "output_len": output,
            "prefix_group": group,
            "prefix_tokens": shared,
            "remote": int(remote),
            "prefill": index % len(self.prefill) if remote and self.prefill else -1,
            "decode": index % len(self.decode) if self.decode else -1,
        }
        if "policy" in self.case:
            given["priority"] = self.priority(index)
        later = ["handed_s", "taken_s", "copy_s", "ready_s", "copied_blocks"]
        ends = [*NOTHING_YET, "told_s"]
        later += [f"prefill_{name}" for name in ends] + ends
        return {**given, **dict.fromkeys(later)}

    def priority(self, index: int) -> int:
        priorities = self.case["requests"][index][6:]
        return int(priorities[0]) if priorities else 0

    def at(self, when_s: float, kind: int, source: int, do: Callable[[], None]) -> None:
        """Have something done at a time."""
        self.made += 1
        heapq.heappush(self.events, (when_s, kind, source, self.made, do))

    def arrive(self, index: int) -> None:
        row, output = self.rows[index], self.case["requests"][index][2]
        if row["prefill"] >= 0:
            self.prefill[row["prefill"]].receive(index, 1, dict(TO_BE_PULLED))
        elif row["remote"]:
            self.deliver(index, {**READY_TO_PULL, "remote_request_id": row["id"]})
        else:
            self.decode[row["decode"]].receive(index, output, None)

    def hand_off(self, engine: Engine, index: int, transfer: dict[str, Any]) -> None:
        """Send a request with a first token on to its decode engine."""
        when_s = engine.now_s + self.case["hop_s"]
        source = self.engines.index(engine)
        self.at(when_s, COPY, source, lambda: self.deliver(index, transfer))

    def deliver(self, index: int, transfer: dict[str, Any]) -> None:
        row = self.rows[index]
        row["handed_s"] = self.now_s
        if self.decode:
            output = self.case["requests"][index][2]
            self.decode[row["decode"]].receive(index, output, dict(transfer))
        else:
            self.copy(index, len(transfer["remote_block_ids"][0]), self.now_s)

    def pull(self, engine: Engine, requests: dict[str, Any]) -> None:
        """Copy the blocks for which a decode engine has made room."""
        for name, pulled in requests.items():
            blocks = len(pulled.local_block_ids[0])
            self.copy(int(name[1:]), blocks, engine.now_s)

    def copy(self, index: int, blocks: int, now_s: float) -> None:
        """Queue a copy behind those on its links."""
        row, case = self.rows[index], self.case
        source, sink = max(0, row["prefill"]), max(0, row["decode"])
        start_s = max(now_s, self.out_free_s[source], self.in_free_s[sink])
        ready_s = start_s + (case["handshake_s"] + blocks * case["block_s"])
        self.out_free_s[source] = self.in_free_s[sink] = ready_s
        row |= {"taken_s": now_s, "copy_s": start_s, "ready_s": ready_s}
        row["copied_blocks"] = blocks
        self.at(ready_s, COPY, source, lambda: self.arrived(index))

    def arrived(self, index: int) -> None:
        """Let both ends see that a copy has ended."""
        row = self.rows[index]
        for pool, k in ((self.prefill, row["prefill"]), (self.decode, row["decode"])):
            if pool and k >= 0:
                pool[k].untold.append((self.now_s, row["id"]))
                pool[k].wake(self.now_s)

    def run(self) -> None:
        """Serve all requests."""
        while True:
            engine = min(self.engines, key=lambda engine: engine.next_s)
            if self.events and self.events[0][0] <= engine.next_s:
                self.now_s, *_, do = heapq.heappop(self.events)
                do()
            elif engine.next_s < NEVER:
                engine.step()
            else:
                break
        for engine in self.engines:
            if engine.scheduler.requests:
                raise ValueError(f"{self.case['tag']}: a request never fits")
            prefix = "prefill_" if engine in self.prefill else ""
            for name, found in engine.rows.items():
                found["told_s"] = engine.told.get(name)
                row = self.rows[int(name[1:])]
                row |= {prefix + key: value for key, value in found.items()}
        for row in self.rows:
            if self.decode and row["remote"]:
                blocks = -(-row["prompt_len"] // self.case["block_size"])
                hits = blocks - row["copied_blocks"]
                row["cached_tokens"] = hits * self.case["block_size"]


def main() -> None:
    """Record every case named on the command line."""
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    init_none_hash(sha256)
    with tempfile.TemporaryDirectory() as folder:
        for path in sys.argv[2:]:
            deployment = Deployment(json.loads(Path(path).read_text()), folder)
            deployment.run()
            write(deployment.case, deployment.rows, deployment.iterations, out)


if __name__ == "__main__":
    main()
