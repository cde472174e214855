"""Lets the tests here import the modules beside them, and the simulator's judge."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "simulator")]

# They run under the Python that has vLLM.
collect_ignore = ["record.py", "record_disaggregated.py"]
