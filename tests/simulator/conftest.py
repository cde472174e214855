"""Lets the tests here import the modules beside them, and those of the papers page."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "examples" / "studies")]
