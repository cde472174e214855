"""Settings of images that requests have."""

from typing import Annotated, ClassVar, Literal

from capplan.llm.image_limit import parse_image_limit
from capplan.planning.settings.adapters import AdapterSettings
from capplan.planning.settings.parallel import ENGINE, MOST_MS
from capplan.settings import setting, validated_with


class ImageSettings(AdapterSettings):
    """Images that an engine encodes."""

    needs: ClassVar = dict.fromkeys(
        ("mm_encoder_tp_mode", "disable_chunked_mm_input", "image_encode_ms"),
        "--limit-mm-per-prompt",
    )

    limit_mm_per_prompt: Annotated[str | None, validated_with(parse_image_limit)] = (
        setting(
            None,
            ENGINE,
            "JSON",
            "Serve images, at most so many a request, as '{\"image\": 4}': columns "
            "image_tokens, images and image_offset of a trace.",
        )
    )
    mm_encoder_tp_mode: Literal["weights", "data"] | None = setting(
        None,
        ENGINE,
        "MODE",
        "Whether GPUs of a replica split the encoder or the images (default weights).",
    )
    disable_chunked_mm_input: bool = setting(
        False, ENGINE, "", "Never end a chunk of a prompt in an image."
    )
    image_encode_ms: float | None = setting(
        None,
        ENGINE,
        "MS",
        "Time to encode an image, as measured (default: estimated from its tokens).",
        ge=0,
        le=MOST_MS,
    )
