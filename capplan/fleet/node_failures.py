"""How often nodes fail, and how long until they serve again."""

FAILURES_PER_1000_NODE_DAYS = 3.79
"""Of a node with 8 GPUs, all causes: Llama 3's training on 16,384 H100s."""
FAILURES_LOW, FAILURES_HIGH = 2.3, 6.5
"""Of A100 clusters: RSC-2 and RSC-1 (arXiv 2410.21680), rounded."""
FAILURES_SOURCE = (
    "419 unexpected interruptions of 16,384 H100s in 54 days (Llama 3, all causes): "
    "training, so rather many for serving"
)
REPAIR_H = 4.0
"""Time until a failed node serves again; assumed. [h]"""
