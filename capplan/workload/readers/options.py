"""Options of the readers."""

from dataclasses import dataclass
from pathlib import Path

from capplan.errors import InputError

SHAREGPT_RULES = ("first", "vllm", "multiturn")


@dataclass(frozen=True)
class ReadOptions:
    """Options of the readers; each format uses those that apply to it.

    Parameters
    ----------
    sharegpt_rule
        Which messages of a conversation make a request.
    tokenizer
        ``tokenizer.json`` to count the tokens of texts; None estimates them.
    salvage
        Whether to keep the whole records of a truncated file.
    seed
        Seed that spreads arrivals which the source rounds coarsely.
    """

    sharegpt_rule: str = "first"
    tokenizer: str | Path | None = None
    salvage: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse an unknown rule."""
        if self.sharegpt_rule not in SHAREGPT_RULES:
            raise InputError(
                f"--sharegpt-rule is {self.sharegpt_rule!r}; "
                f"expected one of {', '.join(SHAREGPT_RULES)}"
            )
