"""The package imports nothing of what is in it."""

import subprocess
import sys


def test_importing_the_package_imports_nothing_heavy():
    code = (
        "import sys, capplan.workload;"
        "print(sorted({'numpy', 'pandas', 'scipy', 'ijson'} & set(sys.modules)))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "[]"
