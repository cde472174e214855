"""Whole nodes as a formula: what ``fleet.nodes.nodes_for`` counts, for two sizes."""

Size = tuple[str, str]
"""Names of the GPUs of a replica and of the number of such replicas."""


def node_formula(sizes: list[Size], node: str) -> str:
    """Return the nodes of replicas of one size, or of two, the larger first.

    ``node`` is the name of the GPUs of a node. A replica that is larger than a node
    takes whole nodes; what is over goes on nodes that it shares, and the smaller ones
    fill what the larger ones leave there.
    """
    large, *small = sizes
    text = f"{_whole(large, node)}+{_shared(large, node)}"
    if not small:
        return text
    (second,) = small
    rest, count = _rest(second, node), second[1]
    left = f"MAX(0,{count}-({_room(large, second, node)}))"
    more = f"IF({rest}=0,0,ROUNDUP({left}/INT({node}/MAX(1,{rest})),0))"
    return f"{text}+{_whole(second, node)}+{more}"


def _rest(size: Size, node: str) -> str:
    """Return the GPUs of a replica beyond the whole nodes that it takes."""
    return f"MOD({size[0]},{node})"


def _whole(size: Size, node: str) -> str:
    return f"{size[1]}*INT({size[0]}/{node})"


def _fit(size: Size, node: str) -> str:
    """Return how many such rests are on one node; where there is none, it is unused."""
    return f"INT({node}/MAX(1,{_rest(size, node)}))"


def _shared(size: Size, node: str) -> str:
    """Return the nodes that the rests of replicas share."""
    return f"IF({_rest(size, node)}=0,0,ROUNDUP({size[1]}/{_fit(size, node)},0))"


def _room(large: Size, small: Size, node: str) -> str:
    """Return how many small replicas go where the large ones leave room.

    On nodes that are full of large ones, and on the last one, which may not be.
    """
    rest, fit, count = _rest(large, node), _fit(large, node), large[1]
    each = f"MAX(1,{_rest(small, node)})"
    full = f"INT({count}/{fit})*INT(({node}-{fit}*{rest})/{each})"
    over = f"MOD({count},{fit})"
    last = f"IF({over}=0,0,INT(({node}-{over}*{rest})/{each}))"
    return f"IF({rest}=0,0,{full}+{last})"
