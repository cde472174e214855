"""Settings of ``capplan search``."""

from capplan.planning.settings import PlanSettings


class SearchSettings(PlanSettings):
    """Settings of the comparison of TP degrees, which does not simulate.

    A scenario of a plan serves: its rate and attainment belong to the traffic and the
    objective, though a comparison at a full batch does not depend on them.
    """

    unread = frozenset(
        {
            "arrivals",
            "extend",
            "drop_oversized",
            "async_scheduling",
            "scheduler",
            "prefix_caching",
            "link_gb_per_s",
            "host_kv_gib",
            "tune",
            "api_overhead_ms",
            "router",
            "predictor",
            "solver",
            "executor",
            "ray_address",
        }
    )
