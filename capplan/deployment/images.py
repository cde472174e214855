"""Images that an engine encodes beside the LLM."""

from dataclasses import dataclass

from capplan.errors import InputError

MOST_ITEMS = 4096
"""Images in an encoder cache: the simulator looks at each."""


@dataclass(frozen=True)
class Images:
    """The encoder cache, with vLLM's names, and how long images take."""

    encoder_cache_size: int = 16_384  # also the budget of an iteration [tokens]
    limit_per_prompt: int = 999  # most images of a request (limit_mm_per_prompt)
    max_image_tokens: int = 16_384  # of an image; larger ones are scaled down [tokens]
    disable_chunked_mm_input: bool = False  # whether a chunk never ends in an image
    encoders: int = 1  # GPUs of which each encodes whole images
    weight_bytes: int = 0  # of the encoder on each GPU [bytes]
    image_s: float = 0.0  # to encode an image, whatever its size [s]
    token_s: float = 0.0  # for each of its tokens [s]
    token_pair_s: float = 0.0  # for each pair of its tokens [s]

    def __post_init__(self) -> None:
        """Refuse what vLLM refuses, and times that are none."""
        for name in (
            "encoder_cache_size",
            "limit_per_prompt",
            "max_image_tokens",
            "encoders",
        ):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; expected >= 1")
        if self.max_image_tokens > self.encoder_cache_size:
            raise InputError(
                f"encoder_cache_size is {self.encoder_cache_size}; expected at least "
                f"max_image_tokens ({self.max_image_tokens})"
            )
        for name in ("weight_bytes", "image_s", "token_s", "token_pair_s"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise InputError(f"{name} is {getattr(self, name)}; expected >= 0")

    @property
    def least_image_tokens(self) -> int:
        """Tokens of the smallest image that is simulated. [tokens]"""
        return max(1, -(-self.encoder_cache_size // MOST_ITEMS))

    def encode_s(self, tokens: float) -> float:
        """Return the time to encode an image of so many tokens. [s]"""
        return self.image_s + tokens * (self.token_s + tokens * self.token_pair_s)
