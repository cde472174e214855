"""Which requests run in the next iteration of a replica: one file per policy.

A scheduler is ``schedule(state, replica) -> horizon``. It puts together the
replica's next iteration with the functions of ``batch.py`` and returns for how
many iterations the same batch runs if nothing arrives: 0 when nothing can run
before a result is collected; otherwise 1 is always correct.
"""

from importlib import import_module

from capplan.errors import InputError

SCHEDULERS = {
    "vllm-v1": "vllm_v1",
}


def scheduler(name: str):
    """Return the compiled ``schedule`` function of the named policy."""
    if name not in SCHEDULERS:
        known = ", ".join(sorted(SCHEDULERS))
        raise InputError(f"scheduler {name!r} is not known; expected one of {known}")
    return import_module(f"{__name__}.{SCHEDULERS[name]}").schedule
