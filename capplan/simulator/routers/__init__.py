"""Which replica an arrival goes to: one file per policy.

A router is a compiled ``route(state, slot, now_s) -> replica``. ``NEEDS`` in its
file says what it reads of the replicas, so that the core advances no more than
that to the moment of the arrival. One that wants to see more of replica r returns
``ADVANCE_FIRST - r`` and is asked again when r has come there (``next_s``). It
chooses among the first ``state.counts[Count.OPEN]``. Its file may have ``RULES`` with
its settings, which compiled code reads from ``ROUTER_SETTINGS`` on. Random numbers
come from ``state.draws``, two for each arrival. Rules that placement uses too are in
``capplan/routing.py``.
"""

from capplan.deployment.policy import Family

ROUTERS = {
    "round-robin": "round_robin",
    "jsq": "join_shortest_queue",
    "power-of-two": "power_of_two",
    "best-fit": "aladdin_best_fit",
    "inst-assign": "inst_assign",
    "least-tokens": "least_tokens",
    "llm-d": "llm_d",
    "llumnix": "llumnix",
    "dynamo-kv": "dynamo_kv",
    "sglang-cache-aware": "sglang_cache_aware",
    "prefix-aware": "prefix_aware",
    "session": "session",
    "consistent-hash": "consistent_hash",
    "size-split": "size_split",
}

_FAMILY = Family("router", ROUTERS, __name__)
router, parse_router = _FAMILY.module, _FAMILY.parse
