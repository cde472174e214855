"""Lets the tests here import the modules beside them.

Also those of the papers page, and the random cases that are recorded too.
"""

import sys
from pathlib import Path

HERE = Path(__file__).parent
STUDIES = HERE.parents[1] / "examples" / "studies"
sys.path[:0] = [str(HERE), str(HERE.parent / "golden"), str(STUDIES)]
