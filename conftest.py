"""Run all tests on one day; leave out of the doctests what is not installed.

Prices age, so that what a plan says of them would change with the day.
"""

import os
from datetime import UTC, datetime
from importlib.util import find_spec

os.environ["SOURCE_DATE_EPOCH"] = str(
    int(datetime(2026, 11, 20, tzinfo=UTC).timestamp())
)

collect_ignore = (
    []
    if find_spec("torch")
    else ["capplan/profiling/torch_backend.py", "capplan/profiling/torch_llm.py"]
)
