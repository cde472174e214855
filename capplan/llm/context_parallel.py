"""Decode context parallelism (DCP): the GPUs of a TP group share the KV of a token.

Where TP copies KV (latent attention, or fewer KV heads than GPUs), ``dcp`` of its GPUs
hold every ``dcp``-th token each in place of all, so that a KV block holds ``dcp`` times
the tokens (vLLM 0.32, ``v1/core/kv_cache_utils.py``, ``resolve_dcp_kv_block_size``).
"""

from capplan.errors import InputError
from capplan.llm.architecture import Architecture


def check_dcp(llm: Architecture | None, tp: int, dcp: int) -> None:
    """Refuse a DCP degree that vLLM does not start; name the nearest that it does.

    Without an LLM only the TP degree is looked at.
    """
    if dcp == 1:
        return
    if dcp < 1:
        raise InputError(f"decode_context_parallel_size is {dcp}; expected >= 1")
    known = [degree for degree in range(1, tp + 1) if _refusal(llm, tp, degree) == ""]
    if reason := _refusal(llm, tp, dcp):
        near = min(known, key=lambda degree: (abs(degree - dcp), degree))
        of = "" if llm is None else f"{llm.name}: "
        raise InputError(
            f"{of}decode_context_parallel_size is {dcp} at TP {tp}; {reason}; "
            f"expected {near}"
        )


def _refusal(llm: Architecture | None, tp: int, dcp: int) -> str:
    """Return why a DCP degree is refused; empty where it is not."""
    if tp % dcp:
        return "it does not divide TP"
    if llm is None or dcp == 1:
        return ""
    if llm.sliding_layers or llm.compressed is not None:
        return "layers with a window cannot share their KV"
    if llm.is_mla:
        return ""
    copies = tp // llm.kv_heads
    if copies <= 1:
        return f"its {llm.kv_heads} KV heads have no copies at this TP"
    if dcp > copies:
        return f"each of its {llm.kv_heads} KV heads has {copies} copies"
    if llm.heads // llm.kv_heads % dcp:
        each = llm.heads // llm.kv_heads
        return f"it does not divide the {each} query heads of a KV head"
    return ""
