"""Names of the hardware and its driver, as the operating system gives them."""

import platform
import re
from pathlib import Path


def cpu_name() -> str:
    """Return the processor's name as Linux gives it."""
    information = Path("/proc/cpuinfo")
    text = information.read_text() if information.exists() else ""
    named = re.search(r"^model name\s*:(.*)", text, re.MULTILINE)
    return named[1].strip() if named else platform.processor() or platform.machine()


def driver() -> str:
    """Return the version of the NVIDIA driver; "none" without one."""
    module = Path("/proc/driver/nvidia/version")
    if not module.exists():
        return "none"
    version = re.search(r"\d+\.\d+(\.\d+)?", module.read_text())
    return version.group(0) if version else "unknown"
