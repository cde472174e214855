"""Options of the readers."""

from dataclasses import dataclass
from pathlib import Path

from capplan.errors import InputError

SHAREGPT_RULES = ("first", "vllm", "multiturn")


@dataclass(frozen=True)
class ReadOptions:
    """Options of the readers; each format uses those that apply to it."""

    sharegpt_rule: str = "first"  # which messages of a conversation make a request
    tokenizer: str | Path | None = None  # tokenizer.json; None estimates tokens
    salvage: bool = False  # keep the whole records of a truncated file
    seed: int = 0  # spreads arrivals that the source rounds coarsely

    def __post_init__(self) -> None:
        """Refuse an unknown rule."""
        if self.sharegpt_rule not in SHAREGPT_RULES:
            raise InputError(
                f"--sharegpt-rule is {self.sharegpt_rule!r}; "
                f"expected one of {', '.join(SHAREGPT_RULES)}"
            )
