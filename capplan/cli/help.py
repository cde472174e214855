"""Help of a command: its options by group, and an example to copy."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

from typer.core import TyperCommand

from capplan.report.questions import QUESTIONS

HELP_FLAGS = {"help_option_names": ["-h", "--help"]}

EXAMPLES = {
    **{name: row.example for name, row in QUESTIONS.items()},
    "init": "capplan init --llm Llama-3.1-8B --traffic 20 --slo ttft=1s,tpot=30ms",
    "diff": "capplan diff before after --format md --fail-above 10%",
    "verify": "capplan verify out/plan.json",
    "export": "capplan export out/plan.json --to k8s --out deploy",
    "check-scheduler": "capplan check-scheduler ./mine.py",
    "profile": "capplan profile meta-llama/Llama-3.1-8B-Instruct --tp 1,2 -o profiles",
    "fit": "capplan fit --from sweep.csv --onto H100/Llama-3.1-8B/1 -o mine.yaml",
    "prices": "capplan prices --gpu H100 --tp 8 --kind on-demand",
    "list": "capplan list gpus --json",
    "profiles list": "capplan profiles list --llm Llama-3.1-8B --gpu H100",
    "profiles show": "capplan profiles show H100/Llama-3.1-8B/1 --plot curves.html",
    "profiles compare": "capplan profiles compare H100/Llama-3.1-8B/1 "
    "H200/Llama-3.1-8B/1",
    "profiles validate": "capplan profiles validate mine.yaml --against fresh.csv",
}
"""A command line for each command, to copy."""


BARE = {"--explain": "all"}
"""Flags that may stand without a value, and the value that they then have."""


def _completed(args: Sequence[str]) -> Iterator[str]:
    """Yield arguments, with a value behind each flag of ``BARE`` that has none."""
    for arg, after in zip_longest(args, args[1:], fillvalue="-"):
        yield arg
        if arg in BARE and (after.startswith("-") or "." in after):
            yield BARE[arg]


class GroupedCommand(TyperCommand):
    """A command whose help lists its options by group, and ends in an example."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; a flag of ``BARE`` may stand without its value."""
        return super().parse_args(ctx, list(_completed(args)))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options under the headings of their groups."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                plain = f"{parameter.param_type_name.capitalize()}s"
                name = getattr(parameter, "rich_help_panel", None) or plain
                groups.setdefault(name, []).append(record)
        for name, records in groups.items():
            with formatter.section(name):
                formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the example on a line of its own, which is not wrapped."""
        example = EXAMPLES.get(ctx.command_path.removeprefix("capplan "))
        if example is not None:
            formatter.write(f"\nExample:\n  {example}\n")
