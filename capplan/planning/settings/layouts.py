"""Settings of ranks that step together and of experts spread over GPUs."""

from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field

from capplan.errors import InputError
from capplan.llm.layout import Layout
from capplan.planning.settings.groups import ENGINE, ConfigurationSettings
from capplan.setting_values import as_json, check_keys, json_object, parts
from capplan.settings import setting, validated_with

All2AllBackend = Literal[
    "allgather_reducescatter", "deepep_low_latency", "deepep_high_throughput"
]
"""All-to-all of vLLM 0.32 (config/parallel.py) whose kernels were measured."""

DEEPEP = "deepep_low_latency"
DEFAULT_BACKEND = get_args(All2AllBackend)[0]
TP_ALONE: dict[str, Any] = {"data_parallel_size": (1,), "enable_expert_parallel": False}
"""Settings of a plan that looks at TP degrees alone."""
_REDUNDANT = "num_redundant_experts"
_PASSED_ON = (
    "window_size",
    "step_interval",
    "log_balancedness",
    "log_balancedness_interval",
    "use_async",
    "policy",
    "communicator",
    "enable_migration_batching",
)
"""Keys of ``--eplb-config`` (vLLM 0.32) that vLLM gets and that change nothing here."""


def parse_eplb_config(text: str) -> dict[str, Any]:
    """Return the keys of ``--eplb-config``.

    Examples
    --------
    >>> parse_eplb_config('{"num_redundant_experts":32}')
    {'num_redundant_experts': 32}
    """
    given = json_object(text, "--eplb-config", f'{{"{_REDUNDANT}": ...}}')
    check_keys(given, (_REDUNDANT, *_PASSED_ON), "--eplb-config")
    copies = given.get(_REDUNDANT, 0)
    if not isinstance(copies, int) or isinstance(copies, bool) or copies < 0:
        raise InputError(
            f"--eplb-config: {_REDUNDANT} is {copies!r}; expected a number >= 0"
        )
    return given


class LayoutSettings(ConfigurationSettings):
    """Ranks of DP attention and expert parallelism."""

    needs: ClassVar = {
        "eplb_config": "--enable-eplb",
        "enable_eplb": "--enable-expert-parallel",
        "prefill_schedule_interval": "--data-parallel-size above 1",
    }

    searches_layouts: ClassVar[bool] = True
    """Whether all layouts are looked at where nothing is given."""

    data_parallel_size: Annotated[
        tuple[Annotated[int, Field(ge=1, le=1024)], ...], BeforeValidator(parts)
    ] = setting(
        (),
        ENGINE,
        "1,8",
        "Ranks of a replica that step together (default: without --tp all with a "
        "profile; in `simulate` and `autoscale` 1).",
    )
    enable_expert_parallel: bool | None = setting(
        None,
        ENGINE,
        "",
        "Whole experts on each GPU, not parts of all (default: without --tp both; in "
        "`simulate` and `autoscale` off).",
    )
    all2all_backend: All2AllBackend | None = setting(
        None,
        ENGINE,
        "NAME",
        f"How tokens reach experts: {', '.join(get_args(All2AllBackend))} (default: "
        "the first).",
    )
    enable_eplb: bool = setting(
        False, ENGINE, "", "Level the load of GPUs by copies of experts (default: off)."
    )
    eplb_config: Annotated[
        str | None, BeforeValidator(as_json), validated_with(parse_eplb_config)
    ] = setting(
        None,
        ENGINE,
        "JSON",
        'Copies of experts as vLLM takes them: {"num_redundant_experts":32}.',
    )
    prefill_schedule_interval: int | None = setting(
        None,
        ENGINE,
        "N",
        "Begin prompts in one of so many steps of the ranks (default 1).",
        ge=1,
        le=1024,
    )

    @staticmethod
    def of(layout: Layout) -> dict[str, Any]:
        """Return the settings, by name, with which a layout is looked at alone."""
        only: dict[str, Any] = {
            "tp": (layout.tp,),
            "data_parallel_size": (layout.dp,),
            "enable_expert_parallel": layout.ep > 1,
        }
        # An all-to-all is of whole experts: without, it is refused.
        return only if layout.ep > 1 else {**only, "all2all_backend": None}

    @property
    def redundant_experts(self) -> int:
        """Copies of experts that EPLB holds beside one of each."""
        if self.eplb_config is None:
            return 0
        return int(parse_eplb_config(self.eplb_config).get(_REDUNDANT, 0))

    @property
    def may_have_ranks(self) -> bool:
        """Whether more than one rank is asked for."""
        return any(size > 1 for size in self.data_parallel_size)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of ranks to look at; none: all."""
        return self.data_parallel_size or (() if self.searches_layouts else (1,))

    @property
    def experts(self) -> bool | None:
        """Whether experts are whole; None: either."""
        if self.searches_layouts or self.enable_expert_parallel is not None:
            return self.enable_expert_parallel
        return False

    @property
    def looks_at_layouts(self) -> bool:
        """Whether ranks or spread experts may be looked at: not with stages."""
        if self.has_stages:
            return False
        return self.asks_for_layouts or (self.searches_layouts and not self.tp)

    @property
    def asks_for_layouts(self) -> bool:
        """Whether anything but TP alone is asked for."""
        given = (self.all2all_backend, self.enable_expert_parallel)
        return bool(self.data_parallel_size) or any(given)
