"""Times of vision encoders against those of vLLM's on an H100."""

import csv
from pathlib import Path

import pytest

from capplan.deployment.images import Images
from capplan.fleet.catalog import gpu
from capplan.latency.vision import encode_times
from capplan.llm.catalog import llm

MEASURED = Path(__file__).parents[2] / "examples" / "studies" / "h100" / "encoders.csv"


def measured() -> list[tuple[str, int, int, float]]:
    with MEASURED.open() as lines:
        return [
            (row["llm"], *map(int, (row["image_tokens"], row["images"])), seconds)
            for row in csv.DictReader(lines)
            if row["module"] == "vllm" and (seconds := float(row["seconds"]))
        ]


def times(name: str, gpu_name: str, tp: int, *, by_image: bool = False) -> Images:
    vision = llm(name).vision
    return Images(
        **encode_times(vision, gpu(gpu_name), tp, by_image=by_image)._asdict()
    )


@pytest.mark.parametrize(("name", "tokens", "count", "seconds"), measured())
def test_an_encoder_takes_as_long_as_it_was_measured(name, tokens, count, seconds):
    found = times(name, "H100-SXM", 1)

    alone_s = max(found.least_s, found.call_s + count * found.encode_s(tokens))

    allowed = 0.025 if seconds > 20e-3 else 0.1
    if tokens * count == 1024:  # launches and kernels take about as long as each other
        allowed = 0.3
    assert alone_s == pytest.approx(seconds, rel=allowed)


def test_gpus_that_split_an_encoder_add_all_reduces():
    one = times("Qwen3-VL-8B", "H100-SXM", 1)
    two = times("Qwen3-VL-8B", "H100-SXM", 2)
    whole = times("Qwen3-VL-8B", "H100-SXM", 2, by_image=True)

    assert one.call_s == 0
    assert two.call_s > 0
    assert two.token_pair_s == pytest.approx(one.token_pair_s / 2)
    assert one.token_s / 2 < two.token_s < one.token_s
    assert whole == one


def test_a_faster_gpu_encodes_faster_and_launches_alike():
    hopper, blackwell = (times("Qwen3-VL-8B", n, 1) for n in ("H100-SXM", "B200-SXM"))

    assert blackwell.encode_s(4096) < hopper.encode_s(4096)
    assert blackwell.least_s == hopper.least_s
