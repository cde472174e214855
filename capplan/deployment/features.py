"""Features of an engine that ``conflicts.csv`` knows, as a user names each."""

from capplan.deployment.engine import EngineSettings
from capplan.engines.catalog import ENGINES

PRIORITY = "vllm-v1-priority"
V1 = ("vllm-v1", PRIORITY)
"""vLLM V1's scheduler, by arrival and by priority."""
WITH_RANKS = (*(row.scheduler for row in ENGINES.values()), PRIORITY)
"""Schedulers whose engines have ranks that step together."""
WITH_MOVES = V1
"""Schedulers whose running requests can be moved."""


def features_of_engine(engine: EngineSettings) -> dict[str, str]:
    """Return how a user names each feature of an engine, by feature."""
    name = engine.scheduler.name
    degrees = {
        "stages": "pipeline_parallel_size",
        "ranks": "data_parallel_size",
        "dcp": "decode_context_parallel_size",
        "interval": "prefill_schedule_interval",
    }
    drafts, priority = engine.speculation is not None, name == PRIORITY
    keeps_answers = engine.tier is not None and engine.tier.answers
    found = (
        ("other scheduler", f"scheduler {name}", name not in V1),
        ("priority", f"scheduler {name}", priority),
        ("scheduler without ranks", f"scheduler {name}", name not in WITH_RANKS),
        ("scheduler without moves", f"scheduler {name}", name not in WITH_MOVES),
        ("drafts", "speculative decoding", drafts),
        ("drafts by priority", "drafts by priority", drafts and priority),
        ("adapters", "--enable-lora", engine.adapters is not None),
        ("images", "images", engine.images is not None),
        ("states", "prefix caching of recurrent states", engine.keeps_states),
        ("tier", "a tier of KV", engine.tier is not None),
        ("kept answers", "answers of a tier", keeps_answers),
        ("windows", "sliding windows", engine.bounded_groups > engine.state_groups),
        ("no async scheduling", "--no-async-scheduling", not engine.async_scheduling),
        *(
            (feature, f"{field} {getattr(engine, field)}", getattr(engine, field) > 1)
            for feature, field in degrees.items()
        ),
    )
    return {feature: text for feature, text, is_given in found if is_given}
