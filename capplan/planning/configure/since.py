"""Settings that the release of an engine did not have that was asked for."""

from capplan.engines.catalog import ENGINES, EngineName, parse_engine
from capplan.errors import InputError
from capplan.planning.configure.speculation import parse_speculative_config
from capplan.planning.settings.asked import Asked


def check_since(settings: Asked) -> None:
    """Refuse settings that the engine's release did not have that was asked for."""
    if settings.engine is None:
        return
    wanted = parse_engine(settings.engine)
    row = ENGINES[wanted.engine]
    for name, first in row.since.items():
        value = getattr(settings, name)
        # A degree or an interval of 1 is none; True, which equals it, is not.
        if value is True or value not in (None, False, 1):
            _check(f"--{name.replace('_', '-')}", wanted, first)
    drafts = settings.speculative_config
    if drafts is not None:
        method = parse_speculative_config(drafts).method
        if method in row.drafts_since:
            what = f'--speculative-config with the method "{method}"'
            _check(what, wanted, row.drafts_since[method])


def _check(what: str, wanted: EngineName, first: str) -> None:
    if wanted.is_before(first):
        raise InputError(
            f"{what} is not known of {wanted}; expected {wanted.engine}@{first} or "
            "newer, or none"
        )
