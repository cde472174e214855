"""Pipeline parallelism (PP): which layers and embeddings the GPUs of a stage hold.

vLLM 0.32, distributed/utils.py, ``get_pp_indices``: as many layers on each stage; those
left over go one each to the stages before the last, the last of them first. The input
embedding is on the first stage, the output embedding on the last.
"""

from dataclasses import replace

from capplan.errors import InputError
from capplan.llm.architecture import Architecture
from capplan.llm.dtypes import UNQUANTIZED_BYTES


def stage_layers(layers: int, stages: int) -> tuple[int, ...]:
    """Return the number of layers of each stage.

    Examples
    --------
    >>> stage_layers(32, 4), stage_layers(61, 4)
    ((8, 8, 8, 8), (15, 15, 16, 15))
    """
    each, left = divmod(layers, stages)
    return tuple(
        each + (stages - 1 - left <= stage < stages - 1) for stage in range(stages)
    )


def largest_share(llm: Architecture, stages: int) -> float:
    """Return the share of a token's arithmetic that the largest stage has.

    The last one has the output embedding too. It sets the pace of a full pipeline, and
    vLLM gives it none of the layers left over.
    """
    head = llm.vocab * llm.hidden / llm.active_parameter_count
    *others, last = (n / llm.layers for n in stage_layers(llm.layers, stages))
    return max((1 - head) * max(others, default=0.0), (1 - head) * last + head)


def check_pp(llm: Architecture, stages: int) -> None:
    """Refuse stages without a layer, and layers that are not counted alike."""
    if stages > llm.layers:
        raise InputError(
            f"{llm.name} has {llm.layers} layers, too few for pipeline_parallel_size "
            f"{stages}; expected at most {llm.layers}"
        )
    unlike = (
        ("layers with a window", llm.sliding_layers > 0 or llm.compressed is not None),
        ("layers with a recurrent state", llm.state_layers > 0),
        ("a sparse index", llm.index is not None),
        ("layers of one part alone", llm.ffn_only_layers + llm.mixer_only_layers > 0),
    )
    for what, has in unlike:
        if has:
            raise InputError(
                f"{llm.name} has {what}, whose stages differ in KV and time, which is "
                f"not modelled; expected pipeline_parallel_size 1"
            )


def stage_llms(llm: Architecture, stages: int) -> tuple[Architecture, ...]:
    """Return the LLM of each stage: its layers, with both embeddings.

    Layers without experts come first.
    """
    found, dense_left = [], llm.dense_layers
    for layers in stage_layers(llm.layers, stages):
        dense = min(dense_left, layers)
        dense_left -= dense
        found.append(replace(llm, layers=layers, dense_layers=dense, mtp_layers=0))
    return tuple(found)


def absent_bytes(llm: Architecture, tp: int, stage: int, stages: int) -> int:
    """Return what a GPU of a stage lacks of the embeddings of its LLM. [bytes]

    Tied ones are on the first and the last stage.
    """
    is_first, is_last = stage == 0, stage == stages - 1
    rows = 0
    if not (is_first or (is_last and llm.tied_embeddings)):
        rows += llm.vocab  # of the inputs
    if not (is_last or llm.tied_embeddings):
        rows += llm.vocab  # of the outputs
    absent = rows * llm.hidden / tp
    if not is_first:
        absent += llm.learned_positions * llm.hidden
    return round(absent * UNQUANTIZED_BYTES)
