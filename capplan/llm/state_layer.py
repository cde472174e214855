"""Layers with a recurrent state instead of KV: Mamba-2 and gated delta networks."""

from dataclasses import dataclass

from capplan.errors import check_at_least

_CONV_BYTES = 2
"""The state of the convolution is in the model's 16 bits. [bytes]"""


@dataclass(frozen=True)
class StateLayer:
    """Shapes of a layer whose state does not grow with the context.

    Its input passes a short convolution, then updates a matrix per head. Shapes of the
    state are those of vLLM's ``MambaStateShapeCalculator``.
    """

    heads: int  # value heads
    head_dim: int
    groups: int  # key heads, or groups that share keys
    state_dim: int  # width of a key
    kernel: int  # width of the convolution [tokens]
    element_bytes: int = 2  # of the recurrent state [bytes]
    gated_delta: bool = False  # else Mamba-2
    key_gate: bool = False  # each of its keys decays by itself (Kimi Delta Attention)
    full_gate: bool = True  # of the output, else of low rank, as that of the keys is

    def __post_init__(self) -> None:
        """Refuse shapes that hold no state."""
        shapes = "heads", "head_dim", "groups", "state_dim", "kernel"
        check_at_least(1, self, *shapes, where="state-space layer: ")

    @property
    def inner(self) -> int:
        """Width of the values of all heads."""
        return self.heads * self.head_dim

    @property
    def _conv_dim(self) -> int:
        return self.inner + 2 * self.groups * self.state_dim

    def matrix_parameters(self, hidden: int) -> int:
        """Return the parameters of the projections in and out."""
        if self.key_gate:
            low = self.head_dim * (hidden + self.inner)
            gate = hidden * self.inner if self.full_gate else low
            wide = self._conv_dim + self.heads + self.inner
            return hidden * wide + low + gate
        gates = (2 if self.gated_delta else 1) * self.heads
        return hidden * (self._conv_dim + self.inner + gates + self.inner)

    @property
    def plain_parameters(self) -> int:
        """Parameters of the convolution, the scalars of each head and the norm."""
        if self.gated_delta:  # no bias of the convolution; one norm for all heads
            decays = self.inner if self.key_gate else self.heads
            scalars = decays + self.heads + self.head_dim
            return self._conv_dim * self.kernel + scalars
        return self._conv_dim * (self.kernel + 1) + 3 * self.heads + self.inner

    def state_bytes_per_gpu(self, tp: int) -> int:
        """Return the state of one request in one layer on each GPU. [bytes]

        Groups are copied where TP does not divide them.
        """
        copied = (tp - self.groups) if self.groups % tp else 0
        conv_dim = self._conv_dim + 2 * max(copied, 0) * self.state_dim
        recurrent = self.inner * self.state_dim * self.element_bytes
        conv = (self.kernel - 1) * conv_dim * _CONV_BYTES
        return -(-(conv + recurrent) // tp)
