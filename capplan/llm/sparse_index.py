"""Index by which layers choose the tokens that they attend to."""

from dataclasses import dataclass

from capplan.errors import InputError, check_at_least


@dataclass(frozen=True)
class SparseIndex:
    """Shapes of the index of sparse attention: DeepSeek's (DSA) and MiniMax's (MSA).

    Each query scores a small key of every token of the context, and attends to the
    ``topk`` best. Its weights and keys are on every GPU of a replica.
    """

    layers: int  # that score; others share the choice of a layer before them
    sparse_layers: int  # that attend to the chosen tokens only
    heads: int
    head_dim: int
    topk: int  # chosen tokens; of blocks, the tokens in them
    query_width: int  # of the input to the projection of the queries
    weighted: bool  # another projection weighs the heads (DeepSeek)

    def __post_init__(self) -> None:
        """Refuse shapes that choose nothing."""
        shapes = "layers", "heads", "head_dim", "topk", "query_width"
        check_at_least(1, self, *shapes, where="index of sparse attention: ")
        if self.sparse_layers < self.layers:
            raise InputError(
                f"{self.layers} layers have an index, but {self.sparse_layers} sparse "
                "attention; expected at least as many"
            )

    @property
    def key_bytes(self) -> int:
        """Key of a token in a layer with an index. [bytes]

        In FP8 with a 32-bit scale per 128 (DeepSeek), or in 16 bits, as vLLM keeps it.
        """
        if self.weighted:
            return self.head_dim + 4 * self.head_dim // 128
        return 2 * self.head_dim

    def matrix_parameters(self, hidden: int) -> int:
        """Return the parameters of the projections of queries and keys."""
        return self.head_dim * (self.heads * self.query_width + hidden)

    def plain_parameters(self, hidden: int) -> int:
        """Return those of norms and the heads' weights, which stay in 16 bits."""
        return 2 * self.head_dim + self.weighted * self.heads * hidden

    def flops(self, context_tokens: float) -> float:
        """Return the arithmetic of scoring for one token in all layers. [FLOP]"""
        return 2.0 * self.layers * self.heads * self.head_dim * context_tokens
