"""llm-d's Workload Variant Autoscaler, V1: one replica more or fewer by saturation.

llm-d-workload-variant-autoscaler b08b1c77, internal/saturation/analyzer.go, with the
thresholds of config/manager/configmap-saturation-scaling.yaml; see ``variants.py`` for
its metrics and its HPA. A replica is saturated with ``kv`` of its blocks in use or
``queue`` requests waiting. One more where those that are not saturated have on average
less than ``kv_spare`` or ``queue_spare`` left to that; one fewer where they would keep
it with their load on one replica less. While replicas start or go nothing is decided.
One variant only: there is no other GPU type to choose.
"""

from collections.abc import Mapping

from capplan.deployment.policy import Knob, Rules
from capplan.simulator.autoscalers.settings import within
from capplan.simulator.autoscalers.variants import Peak, Seen, through_hpa, wva_settings
from capplan.simulator.autoscalers.view import Decide, Known

RULES = Rules(
    wva_settings({"kv_spare": Knob(0.10, 0.0, 1.0), "queue_spare": Knob(3.0, 0.0, 1e6)})
)
_LEAST_NOT_SATURATED = 2
"""``MinNonSaturatedReplicasForScaleDown``."""


def step(peak: Peak, settings: Mapping[str, float]) -> int:
    """Return 1, 0 or -1: replicas to add."""
    if len(peak.kv_share) == 0:
        return 0
    kv, queue = settings["kv"], settings["queue"]
    free = (peak.kv_share < kv) & (peak.waiting < queue)
    n = int(free.sum())
    kv_spare = queue_spare = 0.0
    if n:
        kv_spare = kv - float(peak.kv_share[free].sum()) / n
        queue_spare = queue - float(peak.waiting[free].sum()) / n
    if kv_spare < settings["kv_spare"] or queue_spare < settings["queue_spare"]:
        return 1
    if n < _LEAST_NOT_SATURATED:
        return 0
    share = n / (n - 1)
    kv_kept = kv - (kv - kv_spare) * share >= settings["kv_spare"]
    queue_kept = queue - (queue - queue_spare) * share >= settings["queue_spare"]
    return -1 if kv_kept and queue_kept else 0


def start(settings: Mapping[str, float], known: Known) -> Decide:
    """Return a decider that goes by one replica."""

    def decided(seen: Seen, published: int) -> int:
        if published not in (0, seen.current):
            return published  # what it asked for is not there yet
        if seen.view.ready != seen.current:
            return seen.current
        return within(max(seen.current + step(seen.peak, settings), 1), settings)

    return through_hpa(settings, decided)
