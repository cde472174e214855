"""Releases of vLLM that first had a setting.

Read in the sources of its releases from 0.8.0 to 0.32.0: ``engine/arg_utils.py``, and
``config/`` for methods of drafts.
"""

from capplan.errors import InputError
from capplan.latency.engine_rows import parse_engine
from capplan.planning.configure.speculation import parse_speculative_config
from capplan.planning.settings.groups import ConfigurationSettings

SINCE = {
    "all2all_backend": "0.11.1",
    "decode_context_parallel_size": "0.10.2",
    "enable_eplb": "0.9.2",
    "eplb_config": "0.10.2",
    "prefill_schedule_interval": "0.24.0",
}
METHODS = {"mtp": "0.11.0", "eagle3": "0.8.5"}


def check_since(settings: ConfigurationSettings) -> None:
    """Refuse settings that the release of vLLM did not have that was asked for."""
    wanted = None if settings.engine is None else parse_engine(settings.engine)
    if wanted is None or wanted.engine != "vllm" or not wanted.version:
        return
    for name, first in SINCE.items():
        value = getattr(settings, name, None)
        # A degree or an interval of 1 is none; True, which equals it, is not.
        if value is True or value not in (None, False, 1):
            _check(f"--{name.replace('_', '-')}", wanted.version, first)
    drafts = getattr(settings, "speculative_config", None)
    if drafts is not None:
        method = parse_speculative_config(drafts).method
        if method in METHODS:
            what = f'--speculative-config with the method "{method}"'
            _check(what, wanted.version, METHODS[method])


def _check(what: str, version: str, first: str) -> None:
    asked = tuple(map(int, version.split(".")))
    if tuple(map(int, first.split(".")))[: len(asked)] > asked:
        raise InputError(
            f"{what} is not known of vLLM {version}; expected vllm@{first} or newer, "
            "or none"
        )
