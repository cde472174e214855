"""``capplan`` and ``python -m capplan``: the command line, from its first import."""

from capplan.cli.interruption import quit_on_ctrl_c


def main() -> None:
    """Run the command line and exit with its code."""
    quit_on_ctrl_c()
    # Imported here: Ctrl-C during the imports quits without a traceback, too.
    from capplan.cli.main import run

    run()


if __name__ == "__main__":
    main()
