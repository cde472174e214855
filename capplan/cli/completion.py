"""Shell completion: the commands, their flags, and the names that flags take."""

from collections.abc import Callable

from capplan.report.kind_rows import KIND_ROWS


def completer(kind: str) -> Callable[[str], list[str]]:
    """Return a function from what is typed to the names that it may become.

    Of a list such as ``H100-SXM,A1`` the last name is completed.
    """

    def complete(incomplete: str) -> list[str]:
        # Imported here: a completion waits for it, a command does not.
        from capplan.report.pages.kinds import names_of

        before, comma, begun = incomplete.rpartition(",")
        names = [n for n in names_of(kind) if n.startswith(begun)]
        return [f"{before}{comma}{name}" for name in names]

    return complete


def complete_kind(incomplete: str) -> list[str]:
    """Return the kinds of names that what is typed may become."""
    return [kind for kind in KIND_ROWS if kind.startswith(incomplete)]
