"""Aladdin, table 3: the best worker for Llama-2-70B on A100 is of two GPUs.

The testbed joins four A100-80GB by PCIe; our profiles are of NVLink. So the ring
all-reduces of each layer are added at the speed of PCIe 4.0 x16, of which 10 to
25 GB/s are seen in practice. KV capacity is that of section 4.1, all memory but the
weights. Table 3 also has one GPU best for Llama-2-7B; here it is two, also with an
engine's own time per iteration (``examples/studies/papers_aladdin.py``).
"""

import numpy as np
import pytest

from capplan.fleet.catalog import gpu
from capplan.latency.catalog import find_profile
from capplan.llm.catalog import llm
from capplan.planning.size.search import TpOption, search_tp

SHAREGPT_CONTEXT_TOKENS = 480
SLO_TPOT_S = 75e-3  # table 2


def joined_by_pcie(tables, tp, bytes_per_s):
    """Two all-reduces a layer, each of b·hidden·2 bytes over the ring."""
    model = llm("Llama-2-70B")
    requests = np.arange(len(tables.decode_s))
    reduced_bytes = 2 * model.layers * requests * model.hidden * 2
    all_reduce_s = 2 * (tp - 1) / tp * reduced_bytes / bytes_per_s
    return tables._replace(decode_s=tables.decode_s + all_reduce_s)


@pytest.mark.parametrize("pcie_bytes_per_s", [10e9, 15e9, 20e9, 25e9])
def test_two_a100_are_the_best_worker_for_llama_2_70b(pcie_bytes_per_s):
    model, a100 = llm("Llama-2-70B"), gpu("A100-80GB-PCIe")
    options = []
    for tp in (2, 4):
        tables = find_profile(model.name, "A100-80GB-SXM", tp).tables(1024, 2048)
        kv_bytes = tp * a100.memory_bytes - model.weight_bytes()
        options.append(
            TpOption(
                a100.name,
                tp,
                joined_by_pcie(tables, tp, pcie_bytes_per_s),
                int(kv_bytes // model.kv_bytes_per_token()),
            )
        )

    found = search_tp(
        options, context_tokens=SHAREGPT_CONTEXT_TOKENS, slo_tpot_s=SLO_TPOT_S
    )

    assert found.best.tp == 2


def test_one_a100_does_not_hold_llama_2_70b():
    assert llm("Llama-2-70B").weight_bytes() > gpu("A100-80GB-PCIe").memory_bytes
