"""For all tests: hypothesis judges what code does, never how long it takes.

The cases are the same in every run; ``--hypothesis-profile=random`` draws others. A
case that fails is made smaller for half a minute at most.
"""

import json

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import engine

settings.register_profile("capplan", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None)
settings.load_profile("capplan")
engine.MAX_SHRINKING_SECONDS = 30


@pytest.fixture(scope="session", name="changed")
def changed_document():
    """Return a function that copies a JSON document and changes one value."""

    def changed(document, where, value):
        copy = json.loads(json.dumps(document))
        inner = copy
        for key in where[:-1]:
            inner = inner[key]
        inner[where[-1]] = value
        return copy

    return changed
