"""Images that an engine encodes beside the LLM."""

from dataclasses import dataclass

from capplan.errors import InputError, check_at_least

MOST_ITEMS = 4096
"""Images in an encoder cache: the simulator looks at each."""


@dataclass(frozen=True)
class Images:
    """The vision encoder of an engine: what it takes, holds, and how long it takes."""

    limit_per_prompt: int = 999  # most images of a request (limit_mm_per_prompt)
    max_image_tokens: int = 16_384  # of an image; larger ones are scaled down [tokens]
    encoder_cache_size: int = 0  # where another than vLLM's, see ``cache_tokens``
    disable_chunked_mm_input: bool = False  # whether no chunk ends in an image
    encoders: int = 1  # GPUs of which each encodes whole images
    weight_bytes: int = 0  # of the encoder on each GPU [bytes]
    token_bytes: int = 0  # of a token in the encoder cache [bytes]
    least_s: float = 0.0  # of an iteration that encodes images, at least [s]
    call_s: float = 0.0  # of such an iteration, whatever they are [s]
    image_s: float = 0.0  # for each image [s]
    token_s: float = 0.0  # for each of its tokens [s]
    token_pair_s: float = 0.0  # for each pair of its tokens [s]

    def __post_init__(self) -> None:
        check_at_least(1, self, "limit_per_prompt", "max_image_tokens", "encoders")
        if 0 < self.encoder_cache_size < self.max_image_tokens:
            raise InputError(
                f"encoder_cache_size is {self.encoder_cache_size}; expected at least "
                f"max_image_tokens ({self.max_image_tokens})"
            )
        sizes = "encoder_cache_size", "weight_bytes", "token_bytes"
        times = "least_s", "call_s", "image_s", "token_s", "token_pair_s"
        check_at_least(0, self, *sizes, *times)

    def cache_tokens(self, budget_tokens: int) -> int:
        """Return the tokens of images that are kept, and encoded in an iteration.

        vLLM 0.32, ``compute_mm_encoder_budget``: the token budget of an iteration, or
        the largest image. [tokens]
        """
        return self.encoder_cache_size or max(budget_tokens, self.max_image_tokens)

    def least_tokens(self, budget_tokens: int) -> int:
        """Return the tokens of the smallest image that is simulated. [tokens]"""
        return max(1, -(-self.cache_tokens(budget_tokens) // MOST_ITEMS))

    def gpu_bytes(self, budget_tokens: int) -> int:
        """Return the memory of encoder and encoder cache on each GPU. [bytes]"""
        return self.weight_bytes + self.cache_tokens(budget_tokens) * self.token_bytes

    def encode_s(self, tokens: float) -> float:
        """Return what an image of so many tokens adds to an iteration. [s]"""
        return self.image_s + tokens * (self.token_s + tokens * self.token_pair_s)

    def alone_s(self, tokens: float) -> float:
        """Return the time of an image that an iteration encodes alone. [s]"""
        return max(self.least_s, self.call_s + self.encode_s(tokens))
