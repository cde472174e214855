"""AIPerf's ``profile_export.jsonl``: a request a line."""

from collections.abc import Iterable

from capplan.records import Record
from capplan.workload.readers.agents import AgentFormat, Reading, Row, has

_SUBAGENT = "::sa:"


def aiperf(records: Iterable[Record], reading: Reading) -> Iterable[Row]:
    """Yield the completed requests."""
    for record in records:
        of, value = record.fields.get, "metrics.{}.value".format
        prompt = of(value("usage_prompt_tokens"))
        if prompt is None:
            prompt = of(value("input_sequence_length"))
        output = of(value("output_sequence_length"))
        if (of("metadata.benchmark_phase") or "profiling") != "profiling":
            reading.left_out["of the warm-up"] += 1
        elif of("metadata.was_cancelled") or not prompt or output is None:
            reading.left_out["failed"] += 1
        else:
            conversation = str(of("metadata.conversation_id"))
            root, _, agent = conversation.partition(_SUBAGENT)
            yield Row(
                record.place,
                root,
                int(prompt),
                int(output),
                agent,
                reading.number(record, "metadata.request_start_ns") / 1e9,
                reading.number(record, "metadata.request_end_ns") / 1e9,
            )


FORMATS = {
    "aiperf": AgentFormat(
        has("metadata.conversation_id", "metadata.request_start_ns"), aiperf
    )
}
