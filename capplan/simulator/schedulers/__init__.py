"""Which requests run in the next iteration of a replica: one file per policy.

A scheduler is ``schedule(state, replica) -> horizon``. It puts together the
replica's next iteration with the functions of ``batch.py`` and returns for how
many iterations the same batch runs if nothing arrives: 0 when nothing can run
before a result is collected; otherwise 1 is always correct.

Its file also has ``RULES``, what the door must know of it: its settings, what it does,
and the columns of what it remembers of each request and replica. Compiled code reads
them by name, as ``state.settings[SETTING.levels]`` with ``indices(RULES.settings)``.
It may have ``refused(trace, engine, settings)``: which requests it would never finish,
shape (n,), bool, and the reason. It is imported, and so compiled, when it is named.

A user's own file is named by its path: see own_file.py.
"""

from importlib import import_module
from typing import Any

from capplan.deployment.policy import Knob as Knob
from capplan.deployment.policy import Policy, parse_policy
from capplan.deployment.policy import Rules as Rules
from capplan.deployment.policy import indices as indices
from capplan.errors import InputError, nearest
from capplan.simulator.schedulers.own_file import (
    copy_of,
    file_of,
    load,
    named_by_content,
    with_content,
)
from capplan.simulator.schedulers.refusals import none

SCHEDULERS = {
    "vllm-v1": "vllm_v1",
    "vllm-v1-priority": "vllm_v1",
    "orca": "orca",
    "static": "static",
    "sarathi": "sarathi",
    "vllm-v0": "vllm_v0",
    "fastgen": "fastgen",
    "fastserve": "fastserve",
    "alise": "alise",
    "oracle": "oracle",
    "sa": "sa",
    "accelgen": "accelgen",
    "sglang": "sglang",
    "trtllm": "trtllm",
}


def check_name(given: str) -> str:
    """Return ``NAME`` or ``NAME:setting=number,...`` when a policy has the name.

    A file's gets the digits of its content. Nothing is imported; ``parse_scheduler``
    checks the settings.
    """
    name, colon, rest = given.partition(":")
    if file_of(name):
        return f"{named_by_content(name)}{colon}{rest}"
    if name not in SCHEDULERS:
        raise InputError(
            f"scheduler {name!r} is not known{nearest(name, SCHEDULERS)}; expected "
            f"one of {', '.join(sorted(SCHEDULERS))}, or a file such as ./mine.py"
        )
    return given


def needs_compiling(given: str) -> bool:
    """Return whether a policy is to be compiled when it is imported."""
    from capplan.simulator.jit import is_cold

    name = check_name(given).partition(":")[0]
    return is_cold(copy_of(name) if file_of(name) else SCHEDULERS[name])


def scheduler(name: str) -> Any:
    """Return the named policy: its ``schedule``, ``RULES`` and ``refused``."""
    if file_of(name):
        module = load(name)
    elif SCHEDULERS.get(name.partition("+")[0]) == "vllm_v1":
        from capplan.simulator.schedulers.v1_policy import Scheduler

        return Scheduler(name)
    else:
        check_name(name)
        module = import_module(f"{__name__}.{SCHEDULERS[name]}")
    module.__dict__.setdefault("refused", none)
    return module


def parse_scheduler(given: str) -> Policy:
    """Return the policy of ``NAME`` or ``NAME:setting=number,...``.

    Examples
    --------
    >>> str(parse_scheduler("static:padded=1")), parse_scheduler("orca").settings
    ('static:max_len=2048,padded=1', {'max_len': 2048})
    """
    name = given.partition(":")[0]
    if file_of(name):
        name = with_content(name)
    return parse_policy("scheduler", given, name, scheduler(name).RULES)
