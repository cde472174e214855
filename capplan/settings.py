"""Settings of a command: each field is a flag, a key of a scenario, an argument."""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
)

from capplan.errors import InputError, nearest


def setting(
    default: Any,
    panel: str,
    metavar: str,
    description: str,
    *,
    flags: tuple[str, ...] = (),
    repeated: bool = False,
    **checks: Any,
) -> Any:
    """Return a field with its flag's help text, panel and metavar.

    A default of ``...`` makes it required. ``flags`` are its names, such as ``("--out",
    "-o")``; by default the field's with dashes, of a bool with its ``--no-`` form. The
    field of a ``repeated`` flag gets a list; ``checks`` are as of ``pydantic.Field``.
    """
    shown: dict[str, JsonValue] = {"panel": panel, "metavar": metavar}
    shown |= {"flags": list(flags), "repeated": repeated}
    return Field(default, description=description, json_schema_extra=shown, **checks)


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


class Settings(BaseModel):
    """Frozen settings that check themselves; a wrong one is a ``SettingError``.

    The description of each field is its help text on the command line.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True
    )

    scenario_of: ClassVar[type["Settings"] | None] = None
    """Command whose scenarios serve too: what this one does not read is left out."""

    of_one_plan: ClassVar[frozenset[str]] = frozenset()
    """Settings that are left out where a plan.json has them, and refused elsewhere."""

    def __init__(self, **values: Any) -> None:
        """Turn the first complaint of pydantic into one line."""
        _refuse_bools(type(self), values)
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise _explain(error, type(self)) from None

    def refuse(self, names: Iterable[str], why: str) -> None:
        """Refuse those of some settings that are given; ``why`` follows the name."""
        for name in names:
            value = getattr(self, name)
            if not (value is None or value is False or value in ((), {})):
                raise SettingError(name, f"{name} {why}")

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
