"""How many images a request may have, as vLLM's ``--limit-mm-per-prompt`` says it."""

import json

from capplan.errors import InputError


def parse_image_limit(text: str | None) -> int:
    """Return the most images of a request; 0 where nothing is given.

    Other kinds of input may only be switched off: they are not modelled.

    Examples
    --------
    >>> parse_image_limit('{"image": 4, "video": 0}')
    4
    """
    if text is None:
        return 0
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    limit = given.get("image") if isinstance(given, dict) else None
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise InputError(
            f"{text[:60]!r} is no limit of the images of a request; expected one as "
            """'{"image": 4}'"""
        )
    for kind, count in given.items():
        if kind != "image" and count != 0:
            raise InputError(
                f"{kind} is limited to {count}; only images are modelled, expected "
                f"""'{{"image": {limit}}}'"""
            )
    return limit
