"""``capplan`` and ``python -m capplan``: the command line, from its first import."""

import gc
import os
import sys

from capplan.cli.interruption import quit_on_ctrl_c


def main() -> None:
    """Run the command line and exit with its code."""
    quit_on_ctrl_c()
    if sys.argv[1:2] != ["profile"]:  # a measured engine may use the same library
        # Read as numpy is imported; its threads would wait, spinning, for short sums.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # What is imported stays: looking through it for garbage takes 0.2 s.
    gc.set_threshold(50_000, 10, 10)
    # Imported here: Ctrl-C during the imports quits without a traceback, too.
    from capplan.cli.main import run

    run()


if __name__ == "__main__":
    main()
