"""Images of the settings, and how long the LLM's vision encoder takes for them."""

from dataclasses import replace

from capplan.deployment.engine import EngineSettings
from capplan.deployment.images import Images
from capplan.errors import InputError, warn
from capplan.fleet.gpu import Gpu
from capplan.latency.vision import encode_times
from capplan.llm.architecture import Architecture
from capplan.llm.image_limit import parse_image_limit
from capplan.planning.settings.asked import Asked
from capplan.settings import Settings
from capplan.simulator.checks import refuse_images
from capplan.workload.trace import Trace


def seen(trace: Trace, settings: Settings) -> Trace:
    """Return a trace; refuse its images where the settings ask for no encoder."""
    if not settings.given(["limit_mm_per_prompt"]):
        refuse_images(trace, EngineSettings())
    return trace


def with_images(
    engine: EngineSettings,
    settings: Asked,
    llm: Architecture | None,
    gpu: Gpu | None,
    tp: int,
) -> EngineSettings:
    """Return an engine that takes the images of the settings."""
    limit = parse_image_limit(settings.limit_mm_per_prompt)
    if limit == 0:
        return engine
    by_image = settings.mm_encoder_tp_mode == "data"
    images = Images(
        limit_per_prompt=limit,
        disable_chunked_mm_input=settings.disable_chunked_mm_input,
        encoders=tp if by_image else 1,
    )
    if llm is not None:
        images = _encoded_by(images, llm, tp)
    if settings.image_encode_ms is not None:
        images = replace(images, image_s=settings.image_encode_ms / 1e3)
    elif llm is None or llm.vision is None or gpu is None:
        raise InputError(
            "no LLM or GPU, so that the time to encode an image is not known; give "
            "--image-encode-ms"
        )
    else:
        times = encode_times(llm.vision, gpu, tp, by_image=by_image)
        images = replace(images, **times._asdict())
        warn(
            "--image-encode-ms is not given: an image of 1,024 tokens is assumed to "
            f"be encoded in {1e3 * images.alone_s(1024):.3g} ms on {gpu.name}, TP "
            f"{tp}, by its data sheet and an encoder on H100-SXM"
        )
    return replace(engine, images=images)


def _encoded_by(images: Images, llm: Architecture, tp: int) -> Images:
    """Return the images with what the LLM's encoder takes and holds."""
    vision = llm.vision
    if vision is None:
        raise InputError(
            f"--limit-mm-per-prompt: no vision encoder of {llm.name} is modelled; "
            "expected an LLM such as Qwen3-VL-8B, Qwen3.5-27B or Kimi-K2.5"
        )
    split = 1 if images.encoders > 1 else tp
    vision.check_split(split)
    return replace(
        images,
        max_image_tokens=vision.max_image_tokens,
        weight_bytes=vision.weight_bytes_per_gpu(split),
        token_bytes=vision.token_bytes,
    )
