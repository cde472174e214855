"""Remedies for the reasons for which engines fail to start."""

import re

_ADVICE: tuple[tuple[str, str], ...] = (
    (
        r"must be divisible by tensor parallel|heads.*divisible|TP \d+ does not divide|"
        r"TP \d+ neither divides",
        "choose a TP degree that divides the attention heads of the model",
    ),
    (
        r"failed to infer device type|no cuda gpus|cuda.*not available|"
        r"found no nvidia driver|no gpu",
        "run on a machine with a GPU and its driver, or profile the CPU with an "
        "engine built for it",
    ),
    (
        r"not enough allowed numa nodes|world size .* larger than|"
        r"gpus? (?:are |is )?(?:available|visible)|invalid device ordinal|"
        r"not enough cores|process group.*devices|larger than the number of available",
        "use a TP degree no larger than the GPUs that are visible",
    ),
    (
        r"max seq(?:uence)? len.*kv cache|to serve at least one request",
        "give --max-model-len as small as the traffic allows, or raise "
        "--gpu-memory-utilization",
    ),
    (
        r"no available memory for the cache|less than requested memory for kv|"
        r"kv cache",
        "raise --gpu-memory-utilization, or use a higher TP degree or a GPU with "
        "more memory",
    ),
    (
        r"less than desired|free memory on device",
        "stop what else uses the memory, or lower --gpu-memory-utilization",
    ),
    (
        r"out of memory|outofmemory|signal 9|cannot allocate",
        "use a higher TP degree, a smaller --max-num-batched-tokens or a GPU with "
        "more memory",
    ),
    (
        r"max_model_len.*greater than|derived max_model_len",
        "give a --max-model-len that the model allows",
    ),
    (
        r"no module named 'vllm'",
        "install vLLM in this environment, or use --backend torch",
    ),
    (
        r"no module named 'torch'",
        "install torch, or capplan[torch], in this environment",
    ),
    (
        r"not a valid model identifier|can't load the configuration|"
        r"repo id|does not appear to have a file|couldn't connect|localentrynotfound|"
        r"config\.json",
        "give a folder that holds the model's config.json, with --load-format dummy "
        "when it holds no weights",
    ),
)


def advice(reason: str) -> str:
    """Return a remedy for the engine's own reason.

    Examples
    --------
    >>> advice("ModuleNotFoundError: No module named 'vllm'")
    'install vLLM in this environment, or use --backend torch'
    """
    for pattern, remedy in _ADVICE:
        if re.search(pattern, reason, re.IGNORECASE | re.DOTALL):
            return remedy
    return "read the log beside the profile"
