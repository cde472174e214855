"""Write docs/how/papers.md: what the papers claim, and what comes out here.

    python examples/studies/papers.py --docs docs/how/papers.md
    python examples/studies/papers.py --docs docs/how/papers.md --only accelgen

Each section is a module with ``section()``, which runs the paper's setting and returns
its text. The rule of all claims is in ``papers_claims``.
"""

import argparse
import re
from importlib import import_module
from pathlib import Path

import papers_accelgen
import papers_aladdin
import papers_alise
import papers_distserve
import papers_fastserve
import papers_llumnix
import papers_sa
import papers_sarathi
import papers_splitwise

SECTIONS = (
    papers_accelgen,
    papers_alise,
    papers_fastserve,
    papers_sarathi,
    papers_sa,
    papers_aladdin,
    papers_llumnix,
    papers_distserve,
    papers_splitwise,
)
HEAD = """# Papers and what comes out here

Written by `python examples/studies/papers.py --docs docs/how/papers.md` (ten minutes).
Each policy runs in the setting of its paper as far as the paper gives it. Ratios
between policies are compared, not absolute times: those belong to the papers' GPUs.

What is drawn is found with ten seeds: the median, and in brackets the least and the
most of the ten. It is in the band where all ten are. Bands are the papers' figures: a
range as printed, one side of "at least" and "at most", a single figure 10 % to either
side. Of "up to x" the band is all from no gain to x: what lies in it has the sign only,
at the setting at which the median is greatest. The length of a run is part of a claim.
What lies outside has its reason beside it, as far as one was found.

| scheduler | where |
| --- | --- |
| `accelgen` | [AccelGen](#accelgen) |
| `alise` | [ALISE](#alise) |
| `fastserve` | [FastServe](#fastserve) |
| `sarathi` | [Sarathi-Serve](#sarathi-serve), AccelGen |
| `sa` | [SA scheduling](#sa-scheduling) |
| `orca`, `vllm-v0`, `fastgen` | compared with in all but the last |
| `oracle` | ALISE's Fig. 4, exactly |
| `vllm-v1` | SA, [Aladdin](#aladdin), [Llumnix](#llumnix); [vLLM's][v1] own |
| `static`, `vllm-v1-priority` | no figures: hand-worked cases only |
| `sglang`, `trtllm` | engines: [rules][others] |

[v1]: ../internals/simulator.md
[others]: ../internals/simulator.md#sglang-and-tensorrt-llm
"""


def main() -> None:
    """Run all sections; print them, or write them to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", type=Path, help="file to write")
    parser.add_argument("--only", help="section to write anew, the others are kept")
    given = parser.parse_args()
    if given.only:
        module = import_module(f"papers_{given.only}")
        before = re.split(r"^(?=## )", given.docs.read_text(), flags=re.MULTILINE)
        sections = [text.rstrip("\n") + "\n" for text in before[1:]]
        sections[SECTIONS.index(module)] = module.section()
    else:
        sections = [module.section() for module in SECTIONS]
    text = "\n".join([HEAD, *sections])
    if given.docs is None:
        print(text)
    else:
        given.docs.write_text(text)


if __name__ == "__main__":
    main()
