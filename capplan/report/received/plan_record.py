"""Check parts of a plan.json by the fields that its readers need."""

from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from capplan.errors import InputError
from capplan.planning.settings.groups import MOST_REPLICAS
from capplan.settings import expected

Count = Annotated[int, Field(ge=1, le=MOST_REPLICAS)]


class Record(BaseModel):
    """A part of the JSON; keys that are not its fields are not read."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="ignore", defer_build=True
    )


RecordOf = TypeVar("RecordOf", bound=Record)


def checked(path: Path, where: str, model: type[RecordOf], values: Any) -> RecordOf:
    """Return a part of the JSON; an error names the first key that is wrong."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = where + ".".join(map(str, first["loc"]))
        if first["type"] == "missing":
            raise InputError(
                f"{path}: has no {key}; plan again with this release"
            ) from None
        raise InputError(
            f"{path}: {key.rstrip('.')} is {str(first['input'])[:60]!r}; "
            f"{expected(first['msg'])}"
        ) from None
