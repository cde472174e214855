"""Catalog names of the measured hardware and model."""

import re
import warnings

from capplan.errors import CapplanWarning, InputError
from capplan.fleet.catalog import gpu
from capplan.llm.catalog import llm


def gpu_name(device: str) -> str:
    """Return the catalog's name of a device, or the device's own, fit for a path.

    Examples
    --------
    >>> gpu_name("NVIDIA H100 80GB HBM3"), gpu_name("cpu AMD EPYC 7B13")
    ('H100-SXM', 'cpu-amd-epyc-7b13')
    """
    try:
        return gpu(device).name
    except InputError:
        return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-") or "unknown"


def llm_name(name_or_path: str) -> str:
    """Return the catalog's name of a model, or the last part of the name given.

    Examples
    --------
    >>> llm_name("meta-llama/Llama-3.1-8B-Instruct"), llm_name("my/new-model/")
    ('Llama-3.1-8B', 'new-model')
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CapplanWarning)
            return llm(name_or_path).name
    except InputError:
        return name_or_path.rstrip("/").rpartition("/")[2]
