"""What must be served: traces, arrivals and SLOs."""

from importlib import import_module
from typing import Any

_HOME = {
    "ArrivalProcess": "arrivals",
    "RequestSlo": "slo",
    "Slo": "slo",
    "Trace": "trace",
    "extend": "synthesis",
    "iterate_trace": "readers.chunks",
    "open_workload": "catalog",
    "parse_arrivals": "arrivals",
    "parse_slo": "slo",
    "predict": "predictors",
    "read_trace": "readers",
    "resample": "synthesis",
    "rescale": "arrivals",
    "shipped_workload": "catalog",
    "synthesise": "synthesis",
    "with_arrivals": "arrivals",
    "with_predictions": "predictors",
    "with_shared_prefix": "synthesis",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    """Import a public name from its file when it is first asked for."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
