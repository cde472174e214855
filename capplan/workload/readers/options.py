"""Options of the readers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from capplan.errors import InputError

SHAREGPT_RULES = ("first", "vllm", "multiturn")


def tokenizer_file(path: str | Path) -> Path:
    """Return a tokenizer.json, given as itself or by its folder."""
    path = Path(path)
    if path.is_dir():
        path /= "tokenizer.json"
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected a tokenizer.json")
    return path


@dataclass(frozen=True)
class ReadOptions:
    """Options of the readers; each format uses those that apply to it."""

    sharegpt_rule: str = "first"  # which messages of a conversation make a request
    tokenizer: str | Path | None = None  # tokenizer.json; None estimates tokens
    salvage: bool = False  # keep the whole records of a truncated file
    seed: int = 0  # spreads arrivals that the source rounds coarsely
    turns: bool = False  # of recorded sessions come after answers
    columns: Mapping[str, str] = field(default_factory=dict)  # names in a log

    def __post_init__(self) -> None:
        if self.sharegpt_rule not in SHAREGPT_RULES:
            raise InputError(
                f"{self.sharegpt_rule!r} is no rule for ShareGPT; "
                f"expected one of {', '.join(SHAREGPT_RULES)}"
            )
