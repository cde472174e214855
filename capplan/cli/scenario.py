"""Read a scenario: settings in a YAML file, overridden by flags."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml

from capplan.cli.parameters import COMMON, operand
from capplan.errors import InputError, warn
from capplan.input_file import parse_yaml, read_text
from capplan.settings import SettingError, Settings, no_setting
from capplan.simulator.schedulers.own_file import file_of

_PATHS: tuple[str, ...] = ("trace", "workload", "tokenizer", "llm", "prices")
_PATHS += ("profiles", "engine_overhead", "gpu_file", "backtest")
"""Settings that may be paths, relative to the folder of the scenario."""

_ONE_OF = ("trace", "workload")
"""Settings that exclude each other: a flag of one replaces the other."""

Scenario = Annotated[
    Path | None,
    operand("SCENARIO.yaml", "These settings as a YAML file. Flags override it."),
    COMMON,
]
"""Argument of commands that take a scenario."""

Source = Annotated[
    Path | None,
    operand(
        "PLAN.json|SCENARIO.yaml",
        "A plan that `capplan plan` wrote, or these settings as YAML. Flags "
        "override both.",
    ),
    COMMON,
]
"""Argument of commands that take a plan too."""

SettingsOf = TypeVar("SettingsOf", bound=Settings)


def settings_from(
    model: type[SettingsOf],
    scenario: Path | None,
    flags: dict[str, Any],
    planned: Mapping[str, Any] | None = None,
) -> SettingsOf:
    """Return the scenario's settings, or those of a plan, overridden by the flags.

    A flag that is None or an empty list was not given. An error names the flag, or
    file and line.
    """
    given = {name: value for name, value in flags.items() if value not in (None, [])}
    settings = dict(planned or {})
    if scenario is not None:
        settings = read_scenario(model, scenario)
    for name in _ONE_OF:
        if name in given:
            settings = {k: v for k, v in settings.items() if k not in _ONE_OF}
    try:
        return model(**{**settings, **given})
    except SettingError as error:
        if error.setting in given:
            text = str(error).removeprefix(f"{error.setting}: ")
            raise InputError(f"--{error.setting.replace('_', '-')}: {text}") from None
        raise


def settings_of_source(
    model: type[SettingsOf], source: Path | None, flags: dict[str, Any]
) -> SettingsOf:
    """Return the settings of a scenario or of a plan.json, overridden by the flags."""
    if source is None or not (source.suffix == ".json" or source.is_dir()):
        return settings_from(model, source, flags)
    from capplan.report.received.planned_settings import planned_settings

    given = {name for name, value in flags.items() if value not in (None, [])}
    replaced = given.union(_ONE_OF) if given & {*_ONE_OF} else given
    planned = planned_settings(source, model, frozenset(replaced))
    return settings_from(model, None, flags, planned)


def read_scenario(model: type[Settings], path: Path) -> dict[str, Any]:
    """Return the settings of a scenario; its paths are relative to its folder."""
    lines, settings = raw_settings(path)
    others = model.scenario_of.model_fields if model.scenario_of else {}
    for name in list(settings):
        if name in model.model_fields:
            continue
        if name not in others:
            raise InputError(f"{path}:{lines[name]}: {no_setting(name, model)}")
        del settings[name]
        if name not in model.unread:
            warn(f"{path}:{lines[name]}: {name} has no effect on this command")
    for name in _PATHS:
        value = settings.get(name)
        if isinstance(value, str) and (path.parent / value).exists():
            settings[name] = str(path.parent / value)
    scheduler = settings.get("scheduler")
    file = file_of(scheduler) if isinstance(scheduler, str) else ""
    if path.parent != Path() and file and (path.parent / file).exists():
        settings["scheduler"] = f"{path.parent / file}{str(scheduler)[len(file) :]}"
    try:
        model(**settings)  # here the line of a wrong setting is known
    except SettingError as error:
        line = lines.get(error.setting, 1)
        raise InputError(f"{path}:{line}: {error}") from None
    return settings


def raw_settings(path: Path) -> tuple[dict[str, int], dict[str, Any]]:
    """Return the line and the value of each key of a scenario; no file is opened."""
    values, node = parse_yaml(path, read_text(path))
    if not isinstance(node, yaml.MappingNode):
        raise InputError(f"{path}: expected settings as in `rate: 20`")
    lines: dict[str, int] = {}
    for key, _ in node.value:
        name, line = _name(key.value), key.start_mark.line + 1
        if not isinstance(key.value, str) or key.tag != "tag:yaml.org,2002:str":
            raise InputError(f"{path}:{line}: {key.value} is not a setting")
        if name in lines:
            raise InputError(
                f"{path}:{line}: {name} is already set in line {lines[name]}"
            )
        lines[name] = line
    return lines, {_name(key): value for key, value in values.items()}


def _name(key: Any) -> str:
    return str(key).replace("-", "_")
