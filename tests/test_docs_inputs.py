"""docs/reference/inputs.md: a sample of each file it names is read by its command."""

import json
import re
import shlex
from pathlib import Path

import pytest

from capplan.calibration.sweep_file import read_sweep
from capplan.latency.importers import ImportOptions, read_measurements
from capplan.planning.load.traffic import read_requests
from capplan.planning.settings.traffic import RequestSettings
from tests.calibration import test_sweep_file as sweeps
from tests.latency.test_importers import DATA
from tests.workload.readers import test_conversations as chats
from tests.workload.readers import test_formats as formats
from tests.workload.readers import test_gateways as gateways
from tests.workload.test_servegen import SHORT

PAGE = Path(__file__).resolve().parent.parent / "docs/reference/inputs.md"
ROW = re.compile(r"^\| (.+?) \| `(--(?:trace|workload|from) .+?)` \|", re.MULTILINE)
AT = "2026-09-14T08:00:0{}Z"


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


LITELLM = {"call_type": "acompletion", "startTime": AT.format(1), "status": "success"}
LITELLM |= {"prompt_tokens": 9, "completion_tokens": 5}
RUN = {"run_type": "llm", "start_time": AT.format(1), "status": "success"}
RUN |= {"prompt_tokens": 100, "completion_tokens": 10}
GENAI = {"gen_ai__usage__input_tokens": "50", "gen_ai__usage__output_tokens": "5"}
EVENTS = "type,startTime,level,usageDetails\nGENERATION,2026-09-14T08:00:01Z,DEFAULT,"
EVENTS += '"{""input"": 5, ""output"": 6}"\n'
TAGS = {f"gen_ai.usage.{kind}_tokens": 5 for kind in ("input", "output")}
JAEGER = {"startTime": 1_789_372_800_313_000, "duration": 2_000_000}
JAEGER["tags"] = [{"key": k, "type": "int64", "value": v} for k, v in TAGS.items()]
HELICONE = {"request_created_at": AT.format(1), "response_status": 200}
HELICONE |= {"prompt_tokens": 9, "completion_tokens": 3}
OPENROUTER = "created_at,model,native_tokens_prompt,native_tokens_completion\n"
OPENROUTER += "2024-07-15T23:33:19.433273+00:00,m,12,31\n"
BEDROCK = {"schemaType": "ModelInvocationLog", "timestamp": AT.format(1)}
BEDROCK |= {"input": {"inputTokenCount": 35}, "output": {"outputTokenCount": 44}}
ENVOY = {"start_time": AT.format(1), "response_code": 200}
ENVOY |= {"genai_tokens_input": 15, "genai_tokens_output": 7}
BATCH = {"created": 1_780_000_000}
BATCH["usage"] = {"prompt_tokens": 50, "completion_tokens": 2}
ASKED = {"model": "m", "messages": chats.CHAT[:2], "max_tokens": 9}
ARENA = {"tstamp": 1.6825e9, "model_a": "x", "model_b": "y"}
CONFIG = """load: {type: poisson, stages: [{rate: 2, duration: 30}]}
data:
  type: random
  input_distribution: {min: 10, max: 90, mean: 50, std_dev: 9}
  output_distribution: {min: 10, max: 90, mean: 50, std_dev: 9}
"""
WINDOWS = "0,0.1,1.0,Gamma,0.25,8.0\n600,0,0,,0,0\n"

SAMPLES = {
    "spend_logs.json": json.dumps([LITELLM]),
    "observations.json": json.dumps({"data": [gateways.observation(1)]}),
    "observations.csv": EVENTS,
    "jaeger.json": json.dumps({"data": [{"spans": [JAEGER]}]}),
    "runs.jsonl": lines(RUN),
    "spans.jsonl": gateways.otlp(gateways.span(1, **GENAI)),
    "helicone.json": f"[{json.dumps(HELICONE)},\n]",
    "openrouter.csv": OPENROUTER,
    "bedrock.jsonl": lines(BEDROCK),
    "access.jsonl": lines(ENVOY),
    "log.csv": "at;n_in;n_out\n2026-01-01T00:00:00Z;7;8\n",
    "batch_output.jsonl": lines(
        {"custom_id": "a", "response": {"status_code": 200, "body": BATCH}}
    ),
    "batch_input.jsonl": lines({"custom_id": "a", "body": ASKED}),
    "chats.jsonl": lines({"messages": chats.CHAT}),
    "sharegpt.json": formats.SHAREGPT,
    "lmsys.jsonl": lines({**chats.LMSYS, "conversation": chats.CHAT[1:]}),
    "arena.jsonl": lines(
        {**ARENA, "conversation_a": chats.CHAT, "conversation_b": chats.CHAT}
    ),
    "wildchat.jsonl": lines(chats.wildchat()),
    "claude.jsonl": formats.CLAUDE_CODE,
    "azure.csv": formats.AZURE_2024,
    "burstgpt.csv": formats.BURSTGPT_3,
    "mooncake.jsonl": formats.MOONCAKE,
    "qwen.jsonl": formats.QWEN,
    "ragpulse.jsonl": formats.RAGPULSE,
    "plain.csv": formats.PLAIN,
    "config.yml": CONFIG,
    "clients/chunk-0-trace.csv": WINDOWS,
    "clients/chunk-0-dataset.json": json.dumps({"0": SHORT}),
}
"""Files that the commands name."""
REQUESTS = {"arena.jsonl": 2, "config.yml": 60, "clients": 60}
REQUESTS |= dict.fromkeys(("azure.csv", "burstgpt.csv", "mooncake.jsonl"), 2)
REQUESTS |= dict.fromkeys(("qwen.jsonl", "ragpulse.jsonl", "plain.csv"), 2)
REQUESTS["claude.jsonl"] = 2

LOAD_TESTS = {
    "vllm_runs/{}.json": sweeps.VLLM,
    "sglang.jsonl": sweeps.SGLANG,
    "benchmarks.json": sweeps.GUIDELLM,
    "artifacts/{}/profile_export_aiperf.json": sweeps.AIPERF_0_13,
    "genai_perf/{}/profile_export_genai_perf.json": sweeps.GENAI_PERF,
    "reports/stage_{}_lifecycle_metrics.json": sweeps.INFERENCE_PERF,
    "llmperf/{}_summary.json": sweeps.LLMPERF,
    "agg.json": sweeps.INFERENCEMAX,
    "trtllm_reports/{}.json": sweeps.TRTLLM,
}
"""Tests of each tool, with the names of its files."""
MEASURED = {
    "served.json": "vllm_bench_serve.json",
    "latency.json": "vllm_bench_latency.json",
    "guidellm.json": "guidellm.json",
    "profile_export.jsonl": "aiperf.jsonl",
    "vllm.log": "vllm_iterations.log",
    "llmservingsim.jsonl": "llmservingsim.jsonl",
    "perf_model.csv": "splitwise.csv",
    "points.csv": "points.csv",
}
TABLE = sweeps.HEAD + "1000,200,8,12.5,55,640\n1000,200,16,13.5,60,1200\n"


def write_load_tests():
    """Write two load tests of each tool, at 8 and 16 users."""
    sweeps.vllm_sweep(Path("sweep"))
    sweeps.guidellm_csv(Path("benchmarks.csv"), "concurrent@8", "concurrent@16")
    Path("means.csv").write_text(TABLE)
    for users in (8, 16):
        sweeps.aiperf_csv(Path(f"artifacts_csv/llama-concurrency{users}"), users)
        for name, test in LOAD_TESTS.items():
            path = Path(name.format(users))
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as file:
                file.write(json.dumps(sweeps.changed(test, users)) + "\n")


COMMANDS = dict(ROW.findall(PAGE.read_text(encoding="utf-8")))


def test_the_page_has_a_command_for_every_sample_and_no_other():
    words = [shlex.split(command) for command in COMMANDS.values()]
    read = {re.sub(r"^servegen:|,.*", "", w[1]) for w in words if w[0] != "--from"}
    fitted = {w[1] for w in words if w[0] == "--from"}

    assert read == {name.partition("/")[0] for name in SAMPLES}
    assert fitted > {name.partition("/")[0] for name in LOAD_TESTS} | MEASURED.keys()


FITTED = [tool for tool, command in COMMANDS.items() if command.startswith("--from")]


@pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")
@pytest.mark.parametrize("tool", FITTED)
def test_measurements_of_each_tool_are_read_by_their_command(
    tool, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    _, name, *more = shlex.split(COMMANDS[tool])
    if name in MEASURED:
        Path(name).write_bytes((DATA / MEASURED[name]).read_bytes())
        given = dict(zip(more[::2], more[1::2], strict=True))
        where = dict([given.pop("--where").split("=")]) if "--where" in given else {}

        run = read_measurements(
            Path(name), ImportOptions(where, *map(int, given.values()))
        )

        assert run is not None
    else:
        write_load_tests()

        assert len(read_sweep(Path(name), 1, {}).points) == 2


@pytest.mark.filterwarnings("ignore::capplan.errors.TraceWarning")
@pytest.mark.parametrize("tool", [tool for tool in COMMANDS if tool not in FITTED])
def test_a_sample_of_each_tool_is_read_by_its_command(tool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = shlex.split(COMMANDS[tool])
    given = {k.strip("-"): v for k, v in zip(words[::2], words[1::2], strict=True)}
    if "columns" in given:
        given["columns"] = dict(pair.split("=") for pair in given["columns"].split(","))
    name = re.sub(r"^servegen:|,.*", "", words[1])
    for file, content in SAMPLES.items():
        if file.partition("/")[0] == name:
            (tmp_path / file).parent.mkdir(exist_ok=True)
            (tmp_path / file).write_text(content, encoding="utf-8")

    drawn = given.pop("rate", None) is not None

    trace = read_requests(RequestSettings(**given))

    assert len(trace) == REQUESTS.get(name, 1)
    assert (trace.arrival_s is None) == drawn
