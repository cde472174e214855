"""Settings of a command: each field is a flag, a key of a scenario, an argument."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
)

from capplan.conflicts import found_conflict
from capplan.errors import InputError, nearest


def setting(
    default: Any,
    panel: str,
    metavar: str,
    description: str,
    *,
    flags: tuple[str, ...] = (),
    repeated: bool = False,
    common: bool = False,
    **checks: Any,
) -> Any:
    """Return a field with its flag's help text, panel and metavar.

    A default of ``...`` makes it required. ``flags`` are its names, such as ``("--out",
    "-o")``; by default the field's with dashes, of a bool with its ``--no-`` form. The
    field of a ``repeated`` flag gets a list; ``-h`` shows a ``common`` one, the rest is
    of ``--help-all``; ``checks`` are as of ``pydantic.Field``.
    """
    shown: dict[str, JsonValue] = {"panel": panel, "metavar": metavar}
    shown |= {"flags": list(flags), "repeated": repeated, "common": common}
    return Field(default, description=description, json_schema_extra=shown, **checks)


common = partial(setting, common=True)
"""A setting that most people use: the first sentence of its text stands in ``-h``."""


def validated_with(check: Callable[[Any], object]) -> AfterValidator:
    """Return a validator that refuses a value as ``check`` does, by an InputError."""

    def accept(value: Any) -> Any:
        check(value)
        return value

    return parsed_with(accept)


def parsed_with(read: Callable[[Any], Any]) -> AfterValidator:
    """Return a validator that takes what ``read`` returns; it refuses as that does."""

    def validate(value: Any) -> Any:
        try:
            return None if value is None else read(value)
        except InputError as error:
            raise ValueError(str(error)) from None

    return AfterValidator(validate)


class SettingError(InputError):
    """A wrong setting; ``setting`` is its name."""

    def __init__(self, setting: str, message: str) -> None:
        super().__init__(message)
        self.setting = setting


_DEGREES = ("data_parallel_size", "pipeline_parallel_size")
"""Settings of several degrees, of which 1 alone asks for nothing."""


class Settings(BaseModel):
    """Frozen settings that check themselves; a wrong one is a ``SettingError``.

    The description of each field is its help text on the command line.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True
    )

    scenario_of: ClassVar[type["Settings"] | None] = None
    """Command whose scenarios serve too: what this one does not read is left out."""

    unread: ClassVar[frozenset[str]] = frozenset()
    """Settings of a scenario, or of a plan, that it has for others: nothing is said."""

    of_one_plan: ClassVar[frozenset[str]] = frozenset()
    """Settings that are left out where a plan.json has them, and refused elsewhere."""

    needs: ClassVar[Mapping[str, str]] = {}
    """Settings that need one of others, and the flags of these for the user."""

    def __init__(self, **values: Any) -> None:
        """Turn the first complaint into one line; refuse what does not go together."""
        _refuse_bools(type(self), values)
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise _explain(error, type(self)) from None
        if row := found_conflict(x for x in self.model_fields_set if self._has(x)):
            both = f"{row.beside} and {row.feature} are both given"
            raise SettingError(row.feature, f"{both}{row.because}")
        for name, others in self.needed().items():
            names = [x.replace("-", "_") for x in re.findall(r"--([a-z-]+)", others)]
            if self._changes(name) and not any(map(self._changes, names)):
                raise SettingError(name, f"{name} is given; expected {others} with it")
        for name, why in self.contradictions():
            raise SettingError(name, why)

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield settings whose values contradict others, each with the reason."""
        yield from ()

    @classmethod
    def needed(cls) -> dict[str, str]:
        """Return what each setting needs that needs another one, its groups' too."""
        groups = (vars(group).get("needs", {}) for group in cls.__mro__)
        return {name: others for needs in groups for name, others in needs.items()}

    def _has(self, name: str) -> bool:
        """Return whether a setting says anything; one rank or one stage is none."""
        value = getattr(self, name)
        if isinstance(value, tuple | dict):
            return bool(value) and not (name in _DEGREES and set(value) == {1})
        return value is not None and value is not False

    def _changes(self, name: str) -> bool:
        """Return whether a setting is not as by default."""
        default = type(self).model_fields[name].default
        return self._has(name) and getattr(self, name) != default

    def given(self, names: Iterable[str]) -> list[str]:
        """Return those of some settings that the command has and that are given."""
        values = ((name, getattr(self, name, None)) for name in names)
        return [name for name, value in values if value]

    def shared_with(self, model: type["Settings"]) -> dict[str, Any]:
        """Return the settings that another command has too, by name."""
        return {name: value for name, value in self if name in model.model_fields}

    def document(self, left_out: set[str]) -> dict[str, Any]:
        """Return the settings that are not the defaults, as JSON holds them."""
        return self.model_dump(mode="json", exclude_defaults=True, exclude=left_out)


def no_setting(name: str, model: type[Settings]) -> str:
    """Return why a name is none of a command's settings, with the nearest one."""
    if any(name in other.model_fields for other in _all_settings(Settings)):
        return f"{name} has no effect on this command; leave it out"
    return f"{name} is not a setting{nearest(name, model.model_fields)}"


def _all_settings(model: type[Settings]) -> list[type[Settings]]:
    found = [model]
    for other in model.__subclasses__():
        found += _all_settings(other)
    return found


def _refuse_bools(model: type[Settings], values: dict[str, Any]) -> None:
    """Refuse True and False, which would count as 1 and 0, where no bool belongs."""
    for name, value in values.items():
        field = model.model_fields.get(name)
        if field is None or {bool, Any} & _parts(field.annotation):
            continue
        if any(isinstance(leaf, bool) for leaf in _leaves(value)):
            raise SettingError(
                name,
                f"{name} is {value!r}; expected no True or False (in YAML: yes, no, "
                "on, off, true and false)",
            )


def _parts(annotation: Any) -> set[Any]:
    arguments = get_args(annotation)
    if not arguments:
        return (
            {annotation} if isinstance(annotation, type) or annotation is Any else set()
        )
    return {part for argument in arguments for part in _parts(argument)}


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [leaf for each in value for leaf in _leaves(each)]
    return [value]


def _explain(error: ValidationError, model: type[Settings]) -> SettingError:
    first = error.errors()[0]
    name = str(first["loc"][0]) if first["loc"] else "settings"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        return SettingError(name, no_setting(name, model))
    if first["type"] == "value_error":
        return SettingError(name, f"{name}: {message}")
    plain = expected(message)
    if first["type"] != "literal_error":  # after the comma: why it cannot be parsed
        plain = plain.partition(",")[0]
    return SettingError(name, f"{name} is {first['input']!r}; {plain}")


def expected(message: str) -> str:
    """Return what a complaint of pydantic says is right, in plain words."""
    plain = message.replace("Input should be", "expected")
    return plain.replace("valid string", "text").replace("valid list", "list")
