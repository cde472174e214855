"""Lets the tests here import the scripts of the accuracy page."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "studies"))
