"""Read public load tests of engines, each set in the form that it was kept in.

Each reader yields the load tests of a file as a key, the fields of
:class:`served_sweeps.Sweep` but its points, and a point. What capplan has no catalog
entry for, speculative decoding, prefill and decode on GPUs of their own, and data or
expert parallelism are left out.
"""

import csv
import gzip
import re
from collections.abc import Iterator
from pathlib import Path

from capplan.calibration.load_test import SweepPoint
from capplan.errors import InputError
from capplan.fleet.catalog import gpu as find_gpu
from capplan.llm.architecture import Architecture
from capplan.llm.catalog import llm as find_llm

Test = tuple[tuple, SweepPoint]

DASHBOARD = "InferenceMAX v1 dashboard of 2025-10-24"
SILICON = "end-to-end runs kept with aiconfigurator-core 0.12"
OFFICIAL = "InferenceMAX runs of 2025-12 and 2026-01"
INFERENCEX = "InferenceX runs of 2026"
NEBIUS = "runs on H200 of 2026-06"
OTHER_CLUSTER = "runs of another cluster of H200, 2026-06"
PERFLAB = "GPUStack performance lab, 2026-08"
COOKBOOK = "SGLang cookbook, 2026-05"
DUMP = "medians of InferenceX, dump of 2026-07-20"

OLDER = "of older nights"
"""In place of the version of an engine of the dump that was older than its others."""

GPUS = {
    "h100": "H100-SXM",
    "h200": "H200-SXM",
    "b200": "B200-SXM",
    "b200-trt": "B200-SXM",
    "b300": "B300-SXM",
    "a100": "A100-80GB-SXM",
    "mi300x": "MI300X",
    "mi325x": "MI325X",
    "mi355x": "MI355X",
    **{
        name: find_gpu(name).name
        for name in (
            *("h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm", "gb200", "gb300"),
            *("a100_sxm", "l40s", "rtx_pro_6000_server"),
        )
    },
}

ENGINES = {"trt": "trtllm", "tensorrt-llm": "trtllm"}
"""Names of engines in these files, where they are not capplan's."""

_OFFICIAL_LLMS = {
    ("gptoss", "fp4"): "gpt-oss-120b",
    ("dsr1", "fp8"): "DeepSeek-R1",
    ("dsr1", "fp4"): "DeepSeek-R1-NVFP4",
}

_DASHBOARD_LLMS = {
    ("Llama 3.3 70B Instruct", "fp8"): ("Llama-3.3-70B-FP8", "0.10.2"),
    ("Llama 3.3 70B Instruct", "fp4"): ("Llama-3.3-70B-NVFP4", "0.10.2"),
    ("gpt-oss 120B", "fp4"): ("gpt-oss-120b", "0.10.2"),
    ("DeepSeek R1 0528", "fp8"): ("DeepSeek-R1", ""),
}
"""Name in the catalog and version of vLLM, by model and precision of the dashboard."""

_SILICON_LLMS = {
    ("Qwen/Qwen3-32B", ""): "Qwen3-32B",
    ("Qwen/Qwen3-32B", "fp8"): "Qwen3-32B-FP8",
    ("openai/gpt-oss-120b", "fp4"): "gpt-oss-120b",
    ("meta-llama/Llama-3.1-8B-Instruct", ""): "Llama-3.1-8B",
}
"""The same of the end-to-end runs, which state their version."""

_DUMP_LLMS = {
    ("kimik2.5", "fp4"): "Kimi-K2.5-NVFP4",
    ("kimik2.5", "int4"): "Kimi-K2.5",
    ("minimaxm2.5", "fp4"): "MiniMax-M2.5-NVFP4",
    ("minimaxm2.5", "fp8"): "MiniMax-M2.5",
    ("minimaxm3", "fp4"): "MiniMax-M3-NVFP4",
    ("minimaxm3", "fp8"): "MiniMax-M3-FP8",
    ("qwen3.5", "fp4"): "Qwen3.5-397B-A17B-NVFP4",
    ("qwen3.5", "fp8"): "Qwen3.5-397B-A17B-FP8",
    ("qwen3.5", "bf16"): "Qwen3.5-397B-A17B",
    ("glm5", "fp4"): "GLM-5-NVFP4",
    ("glm5", "fp8"): "GLM-5-FP8",
    ("dsv4", "fp4"): "DeepSeek-V4-Pro",
    ("dsv4", "fp8"): "DeepSeek-V4-Pro",
}
"""LLMs of 2026 alone: of the others there are runs that state their version."""

_NAMES = {
    "DeepSeek-R1-0528": "DeepSeek-R1",
    "Qwen3-235B-A22B-Instruct-2507": "Qwen3-235B-A22B",
    "Qwen3-235B-A22B-Instruct-2507-FP8": "Qwen3-235B-A22B-FP8_BLOCK",
    "Qwen3-32B-FP8": "Qwen3-32B-FP8",
}

_VERSION = re.compile(r"\d+\.\d+(\.\d+)?")


def _rows(path: Path) -> Iterator[dict[str, str]]:
    if not path.exists():
        print(f"{path.name} is absent: its load tests are left out")
        return
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        yield from csv.DictReader(file)


def _known(name: str) -> Architecture | None:
    """Return an LLM of the catalog by the last part of a model's name, or None."""
    short = name.rstrip("/").rpartition("/")[2]
    try:
        return find_llm(_NAMES.get(short, short))
    except InputError:
        return None


def _version(text: str) -> str:
    found = _VERSION.search(text)
    return found.group() if found else ""


def dashboard(path: Path) -> Iterator[Test]:
    """Yield the dashboard's runs, which state medians, lengths from 80 %."""
    for row in _rows(path):
        known = _DASHBOARD_LLMS.get((row["model"], row["precision"]))
        hw = row["hw"].removesuffix("_trt")
        engine, gpu = row["engine_assumed"], GPUS.get(hw)
        users, tp = int(row["conc"]), int(row["tp"])
        isl, osl = int(row["isl"]), int(row["osl"])
        if known is None or gpu is None:
            continue
        name, version = known
        if engine == "trtllm":
            if name.startswith("DeepSeek"):
                continue  # whether attention was data-parallel is not told
            version = ""
        if row["hw"] == "mi355x" and name.endswith("NVFP4"):
            continue  # it runs MXFP4 in place of NVFP4
        # These two ran fewer requests at once than users (see served_sweeps.kv_of).
        if (row["hw"], tp, users) == ("h100", 2, 64) and max(isl, osl) == 8192:
            continue
        tpot_s = float(row["median_tpot_ms"]) / 1e3
        point = SweepPoint(isl, osl, users, tpot_s, least_share=0.8, median=True)
        yield (DASHBOARD, gpu, find_llm(name), tp, isl, osl, engine, version), point


def silicon(path: Path) -> Iterator[Test]:
    """Yield the end-to-end runs that state the version of their engine."""
    for row in _rows(path):
        name = _SILICON_LLMS.get((row["model"], row["precision"]))
        gpu, users = GPUS.get(row["system"]), int(row["batch"])
        if name is None or gpu is None or not row["measured_version"]:
            continue
        if float(row["ttft_ms"]) > 5000:
            continue  # a queue before the engine: not all users were served at once
        isl, osl = int(row["isl"]), int(row["osl"])
        tpot_s, ttft_s = (float(row[name]) / 1e3 for name in ("tpot_ms", "ttft_ms"))
        point = SweepPoint(isl, osl, users, tpot_s, ttft_s, least_share=0.8)
        engine, version = row["backend"], _version(row["measured_version"])
        if version:
            key = (SILICON, gpu, find_llm(name), int(row["tp"]), isl, osl)
            yield (*key, engine, version), point


def official(path: Path) -> Iterator[Test]:
    """Yield the official InferenceMAX runs, lengths from 80 % of the longest."""
    for row in _rows(path):
        name = _OFFICIAL_LLMS.get((row["infmax_model_prefix"], row["precision"]))
        gpu, users = GPUS.get(row["hw"]), int(row["conc"])
        one_engine = row["disagg"] == row["is_multinode"] == "False"
        if name is None or gpu is None or not one_engine:
            continue
        if row["dp_attention"].lower() == "true" or row["spec_decoding"] != "none":
            continue
        name = _on(gpu, name)
        isl, osl, tp = (int(float(row[key])) for key in ("isl", "osl", "tp"))
        point = SweepPoint(
            isl,
            osl,
            users,
            float(row["median_tpot"]),
            float(row["median_ttft"]),
            float(row["output_tput_per_gpu"]) * tp,
            least_share=0.8,
            median=True,
        )
        engine = ENGINES.get(row["framework"], row["framework"])
        version = _version(row["image"].rpartition(":")[2])
        key = (OFFICIAL, gpu, find_llm(name), tp, isl, osl, engine, version)
        yield key, point


def _on(gpu: str, name: str) -> str:
    """Return the LLM that a GPU runs: AMD's take MXFP4 in place of NVFP4."""
    return name.replace("NVFP4", "MXFP4") if gpu.startswith("MI") else name


def on_amd(path: Path) -> Iterator[Test]:
    """Yield InferenceX's runs of DeepSeek-R1 on AMD's GPUs, lengths from 80 %."""
    for row in _rows(path):
        gpu = GPUS.get(row["hardware"], "")
        version = _version(row["image"].rpartition(":")[2])
        if not gpu.startswith("MI") or row["framework"] != "sglang" or not version:
            continue
        apart = "True" in (row["disagg"], row["decode_dp_attention"])
        if apart or row["spec_method"] != "none" or row["decode_ep"] != "1":
            continue
        name = _on(gpu, _OFFICIAL_LLMS["dsr1", row["precision"]])
        isl, osl, tp = (int(float(row[key])) for key in ("isl", "osl", "decode_tp"))
        point = SweepPoint(
            isl,
            osl,
            int(row["conc"]),
            float(row["median_tpot"]),
            float(row["median_ttft"]),
            float(row["output_tput_per_gpu"]) * tp,
            least_share=0.8,
            median=True,
        )
        key = (INFERENCEX, gpu, find_llm(name), tp, isl, osl, "sglang", version)
        yield key, point


def h200(path: Path) -> Iterator[Test]:
    """Yield the runs on H200, without speculative decoding."""
    for row in _rows(path):
        if "spec" in row["path"]:
            continue
        source = OTHER_CLUSTER if row["source"].startswith("heyram74") else NEBIUS
        users, done = int(row["conc"]), int(row["completed"])
        if done < 10 * users:
            continue  # mostly the first wave of prompts
        # Lengths are uniform from 80 % of the longest, of which the file has the mean.
        isl, osl = (8000, 1000) if source == NEBIUS else (1024, 1024)
        point = SweepPoint(
            isl,
            osl,
            users,
            float(row["median_tpot_ms"]) / 1e3,
            float(row["median_ttft_ms"]) / 1e3,
            float(row["output_throughput"]),
            least_share=0.8,
            median=True,
            requests=done,
        )
        engine, version = row["engine"].split()
        llm = find_llm("gpt-oss-120b")
        yield (
            (source, "H200-SXM", llm, int(row["tp"]), isl, osl, engine, version),
            point,
        )


_MODEL = re.compile(r"(?:serve|--model(?:-path)?|trtllm-serve)[ =]+(\S+)")
_TP = re.compile(r"(?:-tp|--tp|--tp-size|--tp_size|--tensor-parallel-size)[ =]+(\d+)")
_TOKENS = re.compile(r"(?:--max-num-batched-tokens|--max_num_tokens)[ =]+(\d+)")
_APART = re.compile(
    r"-dp|dp-attention|speculative|--pp-size [2-9]|pipeline-par|expert-par|ep-size"
)


_ON_PCIE = "qwen3-32b/h100.md"
"""GPUStack's page of runs on H100 whose requests, one at a time, took 43 ms for each
token: its 65.5 GB of weights at 75 % of the bandwidth of H100 PCIe. At that of H100 SXM
they take 20 ms."""
_COPIED = "glm-4.5-air/h100.md"
"""Its page of H100 whose bursts with SGLang stand in its page of A100 too, to the
digit, and whose own table has 2.6 to 3.2 times the tokens/s of those with vLLM."""


def perflab(path: Path) -> Iterator[Test]:
    """Yield GPUStack's runs of one pair of lengths, all requests at once.

    Those of ShareGPT tried settings, and their lengths are not stated: only those of
    four users are taken, with lengths uniform from a tenth of twice the mean.
    """
    for row in _rows(path):
        gpu, serve = GPUS.get(row["gpu"]), row["serve"]
        if row["file"].endswith(_COPIED):
            continue
        if row["file"].endswith(_ON_PCIE):
            gpu = "H100-PCIe"
        model, degree, tokens = (
            found.group(1) if (found := one.search(serve)) else None
            for one in (_MODEL, _TP, _TOKENS)
        )
        llm = None if model is None else _known(model)
        if gpu is None or llm is None or _APART.search(serve):
            continue
        if degree is None and serve.endswith("\\"):
            continue  # the rest of the line is lost, and with it the degree
        engine, _, version = row["engine"].partition(" ")
        engine = ENGINES.get(engine.lower(), engine.lower())
        if not _version(version):
            continue
        if "gpt-oss-20b" in row["file"]:
            llm = find_llm("gpt-oss-20b")  # where the launch line names its sibling
        requests, isl, osl = (int(row[k]) for k in ("requests", "isl", "osl"))
        users = int(float(row["conc"])) if row["conc"] else requests
        if osl == 4:
            users = requests  # the column holds the 4 tokens of the shape
        share = 1.0
        if 180 < isl < 240:
            if users == requests:
                continue
            isl, osl, share = round(isl * 1.8), round(osl * 1.8), 0.11
        point = SweepPoint(
            isl,
            osl,
            users,
            float(row["mean_tpot_ms"]) / 1e3,
            float(row["mean_ttft_ms"]) / 1e3,
            float(row["output_tok_s"]),
            least_share=share,
            requests=requests,
        )
        small = gpu.startswith("A100")
        budget = int(tokens) if tokens else 2048 if small else 8192
        seats = 256 if small else 1024
        tp = int(degree or 1)
        key = (PERFLAB, gpu, llm, tp, isl, osl, engine, _version(version))
        yield (*key, budget, seats), point


_GPU_OF = re.compile(r"(B200|H200|H100|MI300X|MI325X|MI355X)")


def cookbook(path: Path) -> Iterator[Test]:
    """Yield the SGLang cookbook's runs; lengths are uniform from 1 to the longest."""
    for row in _rows(path):
        found = set(_GPU_OF.findall(row["hardware"]))
        llm, version = _known(row["model"]), _version(row["engine"])
        if llm is None or len(found) != 1 or row["speculative"] == "yes":
            continue
        if not (row["isl_max"] and row["mean_tpot_ms"] and version and row["tp"]):
            continue
        if row["dp"] not in ("", "1.0") or row["ep"] not in ("", "1.0"):
            continue
        isl, osl = int(float(row["isl_max"])), int(float(row["osl_max"]))
        point = SweepPoint(
            isl,
            osl,
            int(row["concurrency"]),
            float(row["mean_tpot_ms"]) / 1e3,
            float(row["median_ttft_ms"]) / 1e3,
            float(row["output_tok_s"]),
            least_share=1 / isl,
            requests=int(row["requests"]),
        )
        gpu, tp = GPUS[found.pop().lower()], int(float(row["tp"]))
        yield (COOKBOOK, gpu, llm, tp, isl, osl, "sglang", version), point


_LEAST_MARGIN = 0.3
"""Of the decoded GPU: below it MI300X and MI325X are taken for each other."""


def dump(path: Path) -> Iterator[Test]:
    """Yield InferenceX's medians over all nights and versions of one engine alone.

    Settings are decoded; by Little's law the GPUs of one engine are its TP degree.
    """
    for row in _rows(path):
        llm = _known(_DUMP_LLMS.get((row["model"], row["precision"]), ""))
        gpu, framework = GPUS.get(row["hardware"], ""), row["framework"]
        names = ("disagg", "is_multinode", "decode_dp_attention")
        apart = "True" in [row[name] for name in names]
        if not gpu or apart or row["spec_method"] != "none" or row["decode_ep"] != "1":
            continue
        if llm is None or float(row["margin_hardware"]) < _LEAST_MARGIN:
            continue
        llm = find_llm(_on(gpu, llm.name))
        isl, osl, tp = (int(row[k]) for k in ("isl", "osl", "gpus_by_littles_law"))
        tpot_s, users = float(row["median_tpot_s"]), int(row["conc"])
        point = SweepPoint(isl, osl, users, tpot_s, least_share=0.8, median=True)
        engine = ENGINES.get(framework, framework)
        yield (DUMP, gpu, llm, tp, isl, osl, engine, ""), point


READERS = {
    "served/sweeps.csv": dashboard,
    "iteration_times/silicon_end_to_end.csv": silicon,
    "served/inferencemax_2025-12_2026-01.csv": official,
    "served/deepseek_r1.csv": on_amd,
    "served/h200_2026-06.csv": h200,
    "served/gpustack_perflab_2026-08.csv": perflab,
    "served/sgl_cookbook_2026-05.csv": cookbook,
    "served/2026-07/inferencex_dump_2026-07-20_medians.csv.gz": dump,
}
"""The file that each reader reads, in a folder of data."""


def load_tests(data: Path) -> Iterator[Test]:
    """Yield the load tests of all files of a folder of data."""
    for name, read in READERS.items():
        yield from read(data / name)
