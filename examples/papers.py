"""Write docs/papers.md: what the papers of the policies claim, and what comes out here.

    python examples/papers.py --docs docs/papers.md

Each section is a module with ``section()``, which runs the paper's setting and returns
its text. A claim's band comes from the paper's settings, not from our runs; one that
lies outside has its reason beside it.
"""

import argparse
from pathlib import Path

import papers_accelgen
import papers_sa

SECTIONS = (papers_accelgen, papers_sa)
HEAD = """# Papers and what comes out here

Written by `python examples/papers.py --docs docs/papers.md`. Each policy runs in the
setting of its paper as far as the paper gives it. Ratios between policies are compared,
not absolute times: those belong to the papers' GPUs. A band says where ours is expected
from the paper's own settings; what lies outside has its reason beside it.
"""


def main() -> None:
    """Run all sections; print them, or write them to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", type=Path, help="file to write")
    given = parser.parse_args()
    text = "\n".join([HEAD, *(module.section() for module in SECTIONS)])
    if given.docs is None:
        print(text)
    else:
        given.docs.write_text(text)


if __name__ == "__main__":
    main()
