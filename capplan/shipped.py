"""Version and data of capplan, in a checkout or an installed wheel."""

from pathlib import Path

_PACKAGE = Path(__file__).parent


def own_version() -> str:
    """Return the version that is installed; of a checkout that is not, unknown."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("capplan")
    except PackageNotFoundError:
        return "unknown"


def shipped(folder: str) -> Path:
    """Return the path of ``profiles`` or ``workloads``."""
    for path in (_PACKAGE.parent / folder, _PACKAGE / "_shipped" / folder):
        if path.is_dir():
            return path
    raise FileNotFoundError(f"capplan was installed without its {folder}/ folder.")
