"""How the GPUs of an engine share an LLM: TP, stages, ranks of DP attention, EP.

``--data-parallel-size D --tensor-parallel-size t [--enable-expert-parallel]`` in vLLM:
D ranks of t GPUs have their own attention, KV and requests; the routed experts are on
all D·t GPUs, each expert whole on one of them (EP) or cut into pieces (TP).
"""

import re
from dataclasses import dataclass

from capplan.errors import InputError, check_at_least
from capplan.llm.architecture import Architecture

_NAME = re.compile(
    r"(?:tp(\d{1,4}))?(?:(?:(?<=\d)-|^)dp(\d{1,4}))?(?:(?:(?<=\d)-|^)ep(\d{1,4}))?"
    r"(?:(?:(?<=\d)-|^)pp(\d{1,4}))?"
)


@dataclass(frozen=True)
class Layout:
    """TP degree, number of ranks, GPUs over which experts are spread, stages."""

    tp: int = 1
    dp: int = 1  # ranks that step together
    ep: int = 1  # GPUs that hold different experts; 1: experts are cut by TP
    redundant_experts: int = 0  # copies of loaded experts, by EPLB
    pp: int = 1  # stages that hold the layers one after the other

    def __post_init__(self) -> None:
        """Refuse degrees that no engine can be started with."""
        check_at_least(1, self, "tp", "dp", "ep", "pp")
        if self.gpus % self.ep:
            raise InputError(
                f"EP {self.ep} does not divide the {self.gpus} GPUs of TP {self.tp} "
                f"and DP {self.dp}; expected EP {_nearest_divisor(self.gpus, self.ep)}"
            )
        check_at_least(0, self, "redundant_experts")
        if self.redundant_experts and self.ep == 1:
            raise InputError(
                f"{self.redundant_experts} redundant experts need expert parallelism; "
                f"expected EP {self.gpus}, or none of them"
            )

    @property
    def gpus(self) -> int:
        """GPUs of all ranks and stages."""
        return self.tp * self.dp * self.pp

    def expert_gpus(self, experts: int) -> float:
        """Return the GPUs that hold one copy of all experts, less by redundant ones."""
        if not self.redundant_experts:
            return self.gpus
        return self.gpus * experts / (experts + self.redundant_experts)

    def __str__(self) -> str:
        """Return the name as in the files of profiles: ``tp8-ep8``, ``dp8``."""
        parts = [f"tp{self.tp}"] if self.tp > 1 or self.dp == 1 else []
        parts += [f"dp{self.dp}"] if self.dp > 1 else []
        parts += [f"ep{self.ep}"] if self.ep > 1 else []
        parts += [f"pp{self.pp}"] if self.pp > 1 else []
        return "-".join(parts)

    @property
    def text(self) -> str:
        """The degrees as people read them.

        Examples
        --------
        >>> Layout(8).text, Layout(8, pp=2).text, Layout(1, 8, 8).text
        ('TP 8', 'TP 8 × PP 2', 'DP 8 × TP 1, EP 8')
        """
        ranks = f"DP {self.dp} × " if self.dp > 1 else ""
        experts = f", EP {self.ep}" if self.ep > 1 else ""
        stages = f" × PP {self.pp}" if self.pp > 1 else ""
        return f"{ranks}TP {self.tp}{stages}{experts}"

    @property
    def degrees(self) -> str:
        """The degrees in a column of TP degrees.

        Examples
        --------
        >>> Layout(8).degrees, Layout(8, pp=2).degrees, Layout(1, 8, 8).degrees
        ('8', '8 × PP 2', '1 × DP 8, EP 8')
        """
        ranks = f" × DP {self.dp}" if self.dp > 1 else ""
        experts = f", EP {self.ep}" if self.ep > 1 else ""
        stages = f" × PP {self.pp}" if self.pp > 1 else ""
        return f"{self.tp}{stages}{ranks}{experts}"

    def check(self, llm: Architecture) -> None:
        """Refuse a layout that an LLM cannot have, with the nearest that it can."""
        llm.check_tp(self.tp)
        if not llm.experts:
            if self.dp > 1:
                raise InputError(
                    f"{llm.name} has no experts, so DP {self.dp} is {self.dp} replicas "
                    f"that do not step together; expected --replicas {self.dp} of TP "
                    f"{self.tp}"
                )
            if self.ep > 1:
                raise InputError(
                    f"{llm.name} has no experts for EP {self.ep}; expected TP {self.tp}"
                    " alone"
                )
            return
        held = llm.experts + self.redundant_experts
        if held % self.ep:
            raise InputError(self._uneven(llm, held))

    def _uneven(self, llm: Architecture, held: int) -> str:
        """Return why experts are not spread evenly, and what would be right."""
        if self.redundant_experts:
            right = self.redundant_experts + self.ep - held % self.ep
            return (
                f"{llm.name} has {llm.experts} experts; with {self.redundant_experts} "
                f"redundant ones EP {self.ep} does not divide them; expected {right} "
                "redundant experts"
            )
        even = [
            ep
            for ep in range(1, self.gpus + 1)
            if self.gpus % ep == 0 and llm.experts % ep == 0
        ]
        nearest = min(even, key=lambda ep: (abs(ep - self.ep), ep))
        right = self.ep - held % self.ep
        return (
            f"{llm.name} has {llm.experts} experts; EP {self.ep} does not divide them; "
            f"expected EP {nearest}, or {right} redundant experts by EPLB"
        )


def parse_layout(text: str) -> Layout:
    """Return the layout of ``dp8-ep8``.

    Examples
    --------
    >>> parse_layout("dp8-ep8")
    Layout(tp=1, dp=8, ep=8, redundant_experts=0, pp=1)
    """
    match = _NAME.fullmatch(text.strip().lower()) if text.strip() else None
    if match is None:
        raise InputError(
            f"{text!r} is no layout; expected TP, DP, EP and PP such as tp8, tp8-ep8, "
            "dp8-ep8 or tp8-pp2"
        )
    tp, dp, ep, pp = (int(part or 1) for part in match.groups())
    return Layout(tp, dp, ep, pp=pp)


def check_mtp(llm: Architecture, drafts: int) -> None:
    """Refuse tokens drafted by a layer that an LLM does not have."""
    if drafts < 0:
        raise InputError(f"MTP drafts {drafts} tokens; expected >= 0")
    if drafts and not llm.mtp_layers:
        raise InputError(
            f"{llm.name} has no layer for multi-token prediction; expected none of "
            "its drafts, or those of a draft model or EAGLE"
        )


def _nearest_divisor(number: int, wanted: int) -> int:
    divisors = [d for d in range(1, number + 1) if number % d == 0]
    return min(divisors, key=lambda d: (abs(d - wanted), d))
