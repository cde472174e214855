"""What a user may ask of a reader."""

from dataclasses import dataclass
from pathlib import Path

from capplan.errors import InputError

SHAREGPT_RULES = ("first", "vllm", "multiturn")


@dataclass(frozen=True)
class ReadOptions:
    """Choices that some formats need and others do without.

    Parameters
    ----------
    sharegpt_rule
        Which messages of a conversation make a request.
    tokenizer
        A ``tokenizer.json`` to count the tokens of text with; None estimates.
    salvage
        Whether to keep the whole records of a file that is cut off.
    seed
        Of the draws that spread arrivals which a source rounds coarsely.
    """

    sharegpt_rule: str = "first"
    tokenizer: str | Path | None = None
    salvage: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse a rule that does not exist."""
        if self.sharegpt_rule not in SHAREGPT_RULES:
            raise InputError(
                f"--sharegpt-rule is {self.sharegpt_rule!r}; "
                f"expected one of {', '.join(SHAREGPT_RULES)}"
            )
