"""Images in settings, memory, trace, plan and launch line."""

import pytest

from capplan.deployment.configuration import Configuration
from capplan.errors import CapplanWarning, InputError
from capplan.llm.catalog import llm
from capplan.planning.configure.configuration import configurations, only_configuration
from capplan.planning.configure.launch import launch
from capplan.planning.plan.placing import place
from capplan.planning.plan.plan import plan
from capplan.planning.settings.place import PlaceSettings
from capplan.planning.settings.plan import PlanSettings, SimulateSettings
from capplan.workload.readers import read_trace
from capplan.workload.readers.chunks import iterate_trace

QWEN = {"llm": "Qwen3-VL-8B", "gpu": "H100-SXM", "tp": 1, "latency_ms": "5,0.01,0,0,0"}
LIMIT = '{"image": 4}'
IMAGES = {**QWEN, "limit_mm_per_prompt": LIMIT, "image_encode_ms": 20.0}


def only(**settings) -> Configuration:
    (one,) = configurations(PlanSettings(**settings))
    assert isinstance(one, Configuration), one.reason
    return one


def test_the_encoder_and_its_cache_take_their_memory_from_the_kv():
    text, images = only(**QWEN), only(**IMAGES)

    vision = llm("Qwen3-VL-8B").vision
    taken_bytes = 2 * vision.parameter_count + 16_384 * 4 * 4096 * 2
    assert images.replica.budget.encoder_bytes == taken_bytes
    fewer = text.engine.kv_blocks - images.engine.kv_blocks
    assert fewer == pytest.approx(taken_bytes / images.engine.kv_block_bytes, abs=1)


def test_the_cache_holds_the_token_budget_or_the_largest_image():
    small, large = (
        only(**IMAGES, max_num_batched_tokens=tokens).engine for tokens in (8192, 32768)
    )

    assert small.images.cache_tokens(small.max_num_batched_tokens) == 16_384
    assert large.images.cache_tokens(large.max_num_batched_tokens) == 32_768


def test_a_time_that_is_given_takes_the_place_of_the_estimate():
    assert only(**IMAGES).engine.images.encode_s(5000) == 20e-3


def test_an_encoder_that_was_not_measured_is_estimated_with_a_warning():
    with pytest.warns(CapplanWarning, match="1,024 tokens is assumed to be encoded in"):
        images = only(**{**IMAGES, "image_encode_ms": None}).engine.images

    # Matrices at 0.387, attention at 0.458 of 989 Tflop/s; 27 layers launched.
    vision = llm("Qwen3-VL-8B").vision
    assert images.token_s == pytest.approx(vision.token_flops / (989e12 * 0.387), 0.01)
    assert images.token_pair_s == pytest.approx(
        vision.pair_flops / (989e12 * 0.458), 0.01
    )
    assert images.least_s == pytest.approx(27 * 0.5e-3)


@pytest.mark.filterwarnings("ignore:--image-encode-ms is not given")
def test_gpus_split_the_encoder_or_the_images():
    given = {**IMAGES, "image_encode_ms": None}
    alone, split, apart = (
        only(**{**given, "tp": tp, "mm_encoder_tp_mode": mode}).engine.images
        for tp, mode in ((1, None), (4, "weights"), (4, "data"))
    )

    assert split.weight_bytes == -(-alone.weight_bytes // 8) * 2
    assert split.token_pair_s == pytest.approx(alone.token_pair_s / 4)
    assert split.token_s > alone.token_s / 4  # all-reduces
    assert (apart.encoders, apart.weight_bytes) == (4, alone.weight_bytes)
    assert apart.token_s == alone.token_s


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"limit_mm_per_prompt": "4"}, "limit_mm_per_prompt: '4' is no limit of the"),
        (
            {"limit_mm_per_prompt": '{"image": 4, "video": 1}'},
            "limit_mm_per_prompt: video is limited to 1; only images are",
        ),
    ],
)
def test_other_limits_are_refused(given, reason):
    with pytest.raises(InputError, match=reason):
        PlanSettings(**{**IMAGES, **given})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (
            {"limit_mm_per_prompt": None},
            "image_encode_ms is given; expected --limit-mm",
        ),
        ({"llm": "Llama-3.1-8B"}, "no vision encoder of Llama-3.1-8B .* Qwen3-VL-8B"),
    ],
)
def test_images_without_an_encoder_are_refused(given, reason):
    with pytest.raises(InputError, match=reason):
        list(configurations(PlanSettings(**{**IMAGES, **given})))


def test_the_time_of_an_image_needs_an_llm():
    with pytest.raises(InputError, match="give --image-encode-ms"):
        only_configuration(
            SimulateSettings(
                latency_ms="10,0,0,0,0", kv_blocks=9, limit_mm_per_prompt=LIMIT
            )
        )


def test_the_launch_line_takes_images():
    settings = PlanSettings(**IMAGES, mm_encoder_tp_mode="weights")
    (one,) = configurations(settings)

    line = launch(one, settings).line

    assert """--limit-mm-per-prompt '{"image": 4, "video": 0}'""" in line
    assert "--mm-encoder-tp-mode weights" in line
    assert "--language-model-only" not in line


def test_the_launch_line_of_text_alone_leaves_the_encoder_out():
    settings = PlanSettings(**QWEN)
    (one,) = configurations(settings)

    assert "--language-model-only" in launch(one, settings).line


def test_a_trace_has_images(tmp_path):
    path = tmp_path / "requests.csv"
    path.write_text(
        "arrival_s,prompt_tokens,output_tokens,image_tokens,images,image_offset\n"
        "0,100,5,60,2,10\n1,10,5,0,0,0\n"
    )

    (chunk,) = iterate_trace(path)
    for trace in (read_trace(path), chunk):
        assert trace.image_tokens.tolist() == [60, 0]
        assert trace.images.tolist() == [2, 0]
        assert trace.image_offset.tolist() == [10, 0]


def test_image_tokens_without_a_count_are_of_one_image(tmp_path):
    path = tmp_path / "requests.csv"
    path.write_text("prompt_tokens,output_tokens,image_tokens\n100,5,60\n10,5,0\n")

    assert read_trace(path).images.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("header", "row", "reason"),
    [
        ("image_tokens", "101", ":2: image_tokens is 101; expected at most the tokens"),
        ("image_tokens,image_offset", "60,50", ":2: image_tokens is 60; expected at"),
        ("image_tokens,images", "60,0", ":2: images is 0; expected 1 to image_tokens"),
        ("image_tokens,images", "0,2", ":2: images is 2; expected 1 to image_tokens"),
        ("images", "2", ":1: column images without image_tokens; expected the tokens"),
    ],
)
def test_images_that_no_prompt_has_are_refused(tmp_path, header, row, reason):
    path = tmp_path / "requests.csv"
    path.write_text(f"prompt_tokens,output_tokens,{header}\n100,5,{row}\n")

    with pytest.raises(InputError, match=reason):
        read_trace(path)


def rows(tmp_path):
    path = tmp_path / "images.csv"
    lines = [f"{k / 20},1300,80,1024,{1 + k % 4}" for k in range(400)]
    path.write_text(
        "arrival_s,prompt_tokens,output_tokens,image_tokens,images\n" + "\n".join(lines)
    )
    return str(path)


def test_a_plan_encodes_images_and_says_what_it_assumes(tmp_path):
    asked = {
        **IMAGES,
        "slo": "ttft=1s,tpot=50ms",
        "price": {"H100-SXM": "3"},
        "workload": rows(tmp_path),
    }

    made = plan(PlanSettings(**asked))

    assert made.best is not None
    found = {row.what: row for row in made.assumptions}
    row = found["images, H100-SXM × TP 1"]
    assert row.value.startswith(
        "one of 1,024 tokens is encoded in 20 ms; 16,384 tokens"
    )
    assert row.how == "given"


def test_a_placement_of_images_is_refused(tmp_path):
    settings = PlaceSettings(**IMAGES, slo="ttft=1s", workload=rows(tmp_path))

    with pytest.raises(InputError, match="images are not modelled in a placement"):
        place(settings)


def test_layouts_of_ranks_are_tried_in_a_plan_with_images():
    asked = PlanSettings(
        llm="Qwen3.5-397B-A17B",
        gpu="H200-SXM",
        limit_mm_per_prompt=LIMIT,
        image_encode_ms=20.0,
    )

    tried = [row for row in configurations(asked) if isinstance(row, Configuration)]

    assert {row.layout is not None and row.layout.dp > 1 for row in tried} == {
        True,
        False,
    }


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (
            {"limit_mm_per_prompt": None, "image_encode_ms": None},
            "400 requests have images; expected --limit-mm-per-prompt",
        ),
        (
            {"limit_mm_per_prompt": '{"image": 2}'},
            "row 3 has 3 images; expected at most limit_mm_per_prompt, 2",
        ),
        (
            {"disable_chunked_mm_input": True},
            "max_num_batched_tokens is 8192; expected at least 16384",
        ),
        ({"scheduler": "sarathi"}, "images with scheduler sarathi is not modelled"),
        (
            {"router": "jsq", "rebalancer": "llumnix"},
            "images with --rebalancer is not modelled; expected a fixed",
        ),
    ],
)
def test_a_plan_refuses_what_is_not_modelled(tmp_path, given, reason):
    asked = {**IMAGES, "slo": "ttft=1s", "workload": rows(tmp_path), **given}

    with pytest.raises(InputError, match=reason):
        plan(PlanSettings(**asked))
