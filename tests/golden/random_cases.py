"""Random cases for ``record.py``: few or many blocks, any budget, shared prefixes."""

from collections.abc import Iterable
from typing import Any

import numpy as np

FEATURES = "cached", "drafts", "images", "lora", "priority", "stages", "states"
"""Of which ``random_set`` takes any."""


def _case(rng: np.random.Generator, seed: int, size: int, blocks_more: int):
    """Return a case with blocks of a size; a request alone needs ``blocks_more``."""
    longest = size * int(rng.choice([6, 12, 20]))
    most_output = int(rng.choice([4, 20, 60]))
    alone = -(-(longest + most_output) // size) + 2 + blocks_more
    prefixes = rng.integers(0, int(longest * 0.8), int(rng.choice([1, 2, 4])))
    share = rng.random()
    arrival_s = np.cumsum(rng.exponential(1 / rng.choice([20, 100, 400]), 40))
    if rng.random() < 0.2:
        arrival_s = np.round(arrival_s, 1)  # many at once
    requests = []
    for moment_s in arrival_s.tolist():
        prompt = int(rng.integers(1, longest))
        if rng.random() < 0.15:
            prompt = max(1, prompt // size) * size
        group, shared = -1, 0
        if rng.random() < share:
            group = int(rng.integers(len(prefixes)))
            shared = int(prefixes[group] * (rng.random() if rng.random() < 0.3 else 1))
            prompt = min(longest, max(prompt, shared + int(rng.integers(0, 3 * size))))
        if shared == 0:
            group = -1
        output = int(rng.integers(1, most_output + 1))
        requests.append([round(moment_s, 6), prompt, output, group, shared, -1])
    return {
        "blocks": int(alone * rng.choice([1.0, 1.5, 3.0, 6.0])) + 1,
        "block_size": size,
        "max_model_len": 16_384,
        "prefix_caching": 1,
        "coef": "7.0,0.025,6e-8,0.02,4e-6",
        "seed": seed,
        "requests": requests,
    }


def random_states(seed: int) -> dict[str, Any]:
    """Return a case with one to three groups of recurrent states."""
    rng = np.random.default_rng(seed)
    size = int(rng.choice([8, 16, 32]))
    groups = int(rng.choice([1, 2, 3]))
    budget = int(rng.choice([size // 2 + 8, 3 * size + 5, 4 * size, 16 * size]))
    return {
        **_case(rng, seed, size, 3 * groups),
        "tag": f"states{seed}",
        "async_sched": int(rng.integers(2)),
        "max_num_batched_tokens": budget,
        "max_num_seqs": min(budget, int(rng.choice([4, 8, 32]))),
        "state_groups": groups,
    }


def random_drafted_states(seed: int) -> dict[str, Any]:
    """Return such a case where requests verify one to three drafts."""
    rng = np.random.default_rng((seed, 1))
    case = random_states(seed)
    drafts = int(rng.choice([1, 1, 2, 3]))
    least = case["max_num_seqs"] * (1 + drafts)
    return {
        **case,
        **_case(rng, seed, case["block_size"], (3 + drafts) * case["state_groups"]),
        "tag": f"drafted_states{seed}",
        "max_num_batched_tokens": max(least, case["max_num_batched_tokens"]),
        "drafts": drafts,
        "synthetic_length": int(rng.integers(1, 2 + drafts)),
        "method": str(rng.choice(["mtp", "mtp", "ngram"])),
    }


def random_cut_drafts(seed: int) -> dict[str, Any]:
    """Return a case of one to four drafts, whose budget is often short."""
    rng = np.random.default_rng(seed)
    size = int(rng.choice([4, 8, 16]))
    case = _case(rng, seed, size, 1)
    drafts = int(rng.integers(1, 5))
    seats = int(rng.choice([4, 8, 16]))
    crowd, longest = int(rng.choice([1, 10, 100])), int(rng.choice([2, 4, 8, 1000]))
    most = seats * (1 + drafts) + int(rng.choice([0, 0, 0, 24]))
    for row in case["requests"]:
        row[0] /= crowd
        row[1] = min(row[1], longest)
        row[4] = min(row[4], row[1])
    return {
        **case,
        "tag": f"drafts_cut{seed}",
        "blocks": case["blocks"] * int(rng.choice([1, 2, 4])),
        "async_sched": int(rng.integers(2)),
        "max_num_batched_tokens": int(rng.integers(max(seats, 1 + drafts), most + 1)),
        "max_num_seqs": seats,
        "prefix_caching": int(rng.random() < 0.7),
        "drafts": drafts,
        "synthetic_length": int(rng.integers(1, 2 + drafts)),
        "method": str(rng.choice(["mtp", "ngram"])),
    }


def random_set(seed: int, features: Iterable[str]) -> dict[str, Any]:
    """Return a case of some of ``FEATURES`` together.

    Beside adapters vLLM refuses a budget that is short of all drafts.
    """
    rng = np.random.default_rng((seed, 2))
    has = set(features)
    size = int(rng.choice([4, 8, 16]))
    drafts = int(rng.choice([1, 1, 2, 3])) if "drafts" in has else 0
    groups = int(rng.choice([1, 2, 3])) if "states" in has else 0
    case = _case(rng, seed, size, 1 + (3 + drafts) * groups)
    seats = int(rng.choice([4, 8, 16]))
    budget = int(rng.choice([size + 8, 3 * size + 5, 8 * size, 16 * size]))
    case |= {
        "tag": "_".join([*sorted(has), str(seed)]),
        "async_sched": int("stages" in has or rng.integers(2)),
        "max_num_seqs": seats,
        "max_num_batched_tokens": max(seats * (1 + drafts), budget),
        "prefix_caching": int("states" in has or "cached" in has),
    }
    if drafts:
        case["drafts"] = drafts
        case["synthetic_length"] = int(rng.integers(1, 2 + drafts))
        case["method"] = str(rng.choice(["mtp", "mtp", "ngram"]))
    if groups:
        case["state_groups"] = groups
    if "stages" in has:
        case["pipeline_parallel_size"] = int(rng.choice([2, 2, 3, 4]))
        if drafts:  # so that a prompt has states of all chunks in flight
            case["blocks"] += groups * case["pipeline_parallel_size"]
        case["hop"] = "0.02,0.0001"
    if "priority" in has:
        case["policy"] = "priority"
        levels = int(rng.choice([2, 3, 10]))
        for index, row in enumerate(case["requests"]):
            row[0] += 1e-6 * index  # vLLM orders ties by name
            row.append(int(rng.integers(levels)))
    if "lora" in has:
        case["max_loras"] = int(rng.choice([1, 1, 2, 3]))
        case["max_cpu_loras"] = case["max_loras"] + int(rng.integers(3))
        asked = case["max_loras"] + int(rng.choice([0, 1, 2, 4]))
        count = len(case["requests"])
        case["adapters"] = rng.integers(-1, asked, count).tolist()
    if drafts and "lora" not in has:
        _shorten(np.random.default_rng((seed, 3)), case)
    if "images" in has:
        case |= _images(rng, case)
    return case


def _shorten(rng: np.random.Generator, case: dict[str, Any]) -> None:
    """Often let many decode at once, with less budget than they verify."""
    if rng.random() < 0.6:
        return
    seats, verified = case["max_num_seqs"], 1 + case["drafts"]
    budget = int(rng.integers(max(seats, verified), seats * verified + 1))
    case["max_num_batched_tokens"] = budget
    for row in case["requests"]:
        row[0] /= 100
        row[1] = min(row[1], 2 * case["block_size"])
        row[4] = min(row[4], row[1])


def _images(rng: np.random.Generator, case: dict[str, Any]) -> dict[str, Any]:
    """Return the images of a case, and what its encoder holds.

    With a draft that has KV, a request that holds one image may wait for the next: in a
    small encoder cache requests then wait for each other, and vLLM stands still.
    """
    size, budget = case["block_size"], case["max_num_batched_tokens"]
    largest = min(4 * size, budget - 2)
    own = [_layout(rng, largest) for _ in case["requests"]]
    of_group = [_layout(rng, largest) for _ in range(4)]
    held = [2, 4, 8] if "drafts" in case else [1, 2, 4]
    rows = []
    for row, mine in zip(case["requests"], own, strict=True):
        _, prompt, _, group, shared, _, *_ = row
        each, most, offset = of_group[group] if group >= 0 else mine
        count = max(0, min(most, (prompt - offset) // each))
        rows.append([each * count, count, offset] if count else [0, 0, 0])
        if count < most:  # the prefix ends before an image that has no room
            row[4] = min(shared, offset + each * count)
            row[3] = group if row[4] else -1
    return {
        "images": rows,
        "encoder_cache_size": int(largest * rng.choice(held)),
        "whole_images": int("state_groups" not in case and rng.random() < 0.3),
        "encode": "3,0.02",
    }


def _layout(rng: np.random.Generator, largest: int) -> tuple[int, int, int]:
    """Return the tokens of an image, their number and the tokens before them."""
    each = int(rng.integers(1, largest + 1))
    return each, int(rng.choice([0, 1, 2, 5])), int(rng.integers(0, 2 * largest))
