"""Folders of data that ship with capplan, in a checkout or an installed wheel."""

from pathlib import Path

_PACKAGE = Path(__file__).parent


def shipped(folder: str) -> Path:
    """Return the path of ``profiles`` or ``workloads``.

    Raises
    ------
    FileNotFoundError
        When the installation lacks the folder.
    """
    for path in (_PACKAGE.parent / folder, _PACKAGE / "_shipped" / folder):
        if path.is_dir():
            return path
    raise FileNotFoundError(f"capplan was installed without its {folder}/ folder.")
