"""Print how accurate the latency models are on points they were not fitted to.

Without arguments: the held-out errors recorded in the shipped profiles (5-fold). With
``--data FOLDER`` every profile is fitted again from the raw tables in it, beside
Aladdin's linear forms; tables that are absent are named:

    python examples/studies/accuracy_table.py --data ../shared/data

``iteration_times/vllm_kernel_sum.csv.gz``, ``iteration_times/memory.csv``,
``iteration_times/vidur_predictor.csv`` and ``measured/splitwise_llama2_70b.csv``.
With ``--out PROFILES`` the profiles of the kernel sums are written too, as shipped.
"""

import argparse
import csv
import gzip
import statistics
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from capplan.errors import CapplanWarning, InputError
from capplan.fleet.catalog import gpu as find_gpu
from capplan.latency.catalog import list_profiles, profile_path
from capplan.latency.fit import Fit, fit
from capplan.latency.fitted_profile import Identity, profile_of
from capplan.latency.importers import ImportOptions, read_measurements
from capplan.latency.measurements import Points, points_from_rows
from capplan.latency.profile import Profile
from capplan.latency.profile_file import load_profile, save_profile
from capplan.latency.roofline import roofline_profile
from capplan.latency.transfer import across_tp
from capplan.llm.catalog import llm as find_llm

PHASES = ("prefill", "decode", "mixed")
WORST = "Gemma-4-31B"
"""Dense, and above the target: shown by itself."""

EXPERT_RATES = {
    "Mixtral-8x7B": float(-np.log1p(-2 / 8)),
    "Qwen3-30B-A3B": float(-np.log1p(-8 / 128)),
}
"""``-log(1 - experts per token / experts)`` of the mixtures of experts."""

KERNEL_SOURCE = {
    "none": "aiconfigurator-core 0.12.0, measured kernels summed per iteration",
    "fp8": "aiconfigurator-core 0.13 development release, measured kernels summed "
    "per iteration (per-tensor FP8)",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of the raw tables")
    parser.add_argument("--out", type=Path, help="folder to write the profiles to")
    arguments = parser.parse_args()
    data = arguments.data
    warnings.simplefilter("ignore", CapplanWarning)
    print("| on | median configuration | worst configuration | target |")
    print("|---|---|---|---|")
    shipped()
    if data is None:
        print("\nNo --data: only the errors recorded in the shipped profiles.")
        return
    kernel_sums(data / "iteration_times", arguments.out)
    splitwise(data / "measured" / "splitwise_llama2_70b.csv")
    vidur(data / "iteration_times" / "vidur_predictor.csv")
    kv_cache(data / "iteration_times" / "memory.csv")


class Configuration(NamedTuple):
    """One LLM on one GPU type at one TP degree, and its points that fit."""

    system: str
    backend: str
    version: str
    model: str
    tp: int
    points: Points


def configurations(iterations: Path, memory: Path) -> Iterator[Configuration]:
    """Yield every configuration with the points whose KV fits in its memory."""
    capacity: dict[tuple[str, str, int], float] = {}
    with open(memory, encoding="utf-8") as file:
        for row in csv.DictReader(file):
            key = (row["system"], row["model"], int(row["tp"]))
            capacity[key] = float(row["kv_tokens_total"] or 0)
    rows = defaultdict(list)
    with gzip.open(iterations, "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            names = (row["system"], row["backend"], row["version"], row["model"])
            numbers = ("batch", "new_tokens", "context", "seconds")
            values = (float(row[name]) for name in numbers)
            rows[*names, int(row["tp"])].append((row["phase"], *values))
    for (system, backend, version, model, tp), measured in rows.items():
        points = points_from_rows(measured)
        fits = points.kv_tokens <= capacity.get((system, model, tp), 0)
        if fits.any():
            yield Configuration(system, backend, version, model, tp, points.where(fits))


def kernel_sum_profile(configuration: Configuration, fitted: Fit) -> Profile:
    quantization = "fp8" if configuration.model.endswith("FP8") else "none"
    identity = Identity(
        gpu=find_gpu(configuration.system).name,
        llm=configuration.model,
        tp=configuration.tp,
        quantization=quantization,
        # memory.csv counts one byte per element of the KV of FP8 models.
        kv_dtype="fp8" if quantization == "fp8" else "bfloat16",
        engine=configuration.backend,
        engine_version=configuration.version,
        source=KERNEL_SOURCE[quantization],
        licence="Apache-2.0",
        how="kernel-sum",
    )
    return profile_of(fitted, configuration.points, identity)


def row(what: str, errors: Iterable[float], target: str = "") -> None:
    errors = list(errors)
    if not errors:
        print(f"| {what} | absent | absent | {target} |")
        return
    median, worst = statistics.median(errors), max(errors)
    print(f"| {what} ({len(errors)}) | {median:.2%} | {worst:.2%} | {target} |")


def missing(path: Path, what: str) -> bool:
    if not path.exists():
        print(f"| {what}: {path.name} is absent | – | – | |")
    return not path.exists()


def shipped() -> None:
    """Held-out errors recorded in the shipped profiles of kernel sums."""
    profiles = [load_profile(listed.path) for listed in list_profiles()]
    sums = [profile for profile in profiles if profile.how == "kernel-sum"]
    experts = {name: experts_of(name) for name in {p.llm for p in sums}}
    of = {
        "dense": lambda llm: experts[llm] == 0 and llm != WORST,
        WORST: lambda llm: llm == WORST,
        "mixtures of experts": lambda llm: bool(experts[llm]),
    }
    targets = {"prefill": "2.5 / 8 %", "decode": "2 / 6 %", "mixed": "2.5 / 8 %"}
    for kind, among in of.items():
        for phase in PHASES:
            target = targets[phase] if kind == "dense" else ""
            if kind == "mixtures of experts" and phase == "decode":
                target = "4 / 8 %"
            errors = [
                profile.errors[phase].held_out_mean_abs or 0.0
                for profile in sums
                if among(profile.llm)
            ]
            row(f"shipped profiles, {kind}, {phase}", errors, target)


def experts_of(name: str) -> int | None:
    """Return the experts of a layer; None for an LLM of no catalog."""
    try:
        return find_llm(name).experts
    except InputError:
        return None


def kernel_sums(folder: Path, out: Path | None) -> None:
    iterations, memory = folder / "vllm_kernel_sum.csv.gz", folder / "memory.csv"
    if missing(iterations, "kernel sums") or missing(memory, "kernel sums"):
        return
    errors = defaultdict(list)
    groups: dict[str, list[Fit]] = defaultdict(list)
    profiles, points = defaultdict(dict), {}
    for configuration in configurations(iterations, memory):
        measured, model = configuration.points, configuration.model
        if not all(measured.counts().values()):
            continue
        kind = "mixtures" if model in EXPERT_RATES else "dense"
        chosen = fit(measured, expert_rate=EXPERT_RATES.get(model))
        linear = fit(measured, form="aladdin")
        groups[kind].append(chosen)
        for phase in PHASES:
            for how, fitted in (
                ("unseen points", chosen),
                ("Aladdin's linear forms", linear),
            ):
                error = fitted.errors[phase].held_out_mean_abs
                errors[kind, phase, how].append(error)
        profile = kernel_sum_profile(configuration, chosen)
        if out is not None:
            save_profile(
                profile, profile_path(out, profile.gpu, profile.llm, profile.tp)
            )
        profiles[profile.gpu, model][profile.tp] = profile
        points[profile.gpu, model, profile.tp] = measured
        roofline = roofline_profile(
            find_llm(model.removesuffix("-FP8")),
            find_gpu(profile.gpu),
            profile.tp,
            weight_dtype="fp8" if model.endswith("FP8") else None,
        )
        for phase, error in by_phase(roofline.predict(measured), measured).items():
            errors["all", phase, "roofline alone"].append(error)
    for (kind, phase, how), values in errors.items():
        row(f"kernel sums, {kind}, {phase}, {how}", values)
    for kind, fits in groups.items():
        for part in ("decode", "fused"):
            unseen = [
                score.held_out_groups
                for fitted in fits
                for score in fitted.scores
                if score.chosen and score.part == part
            ]
            row(f"kernel sums, {kind}, {part}, whole sizes left out", unseen)
    left_out = defaultdict(list)
    for (gpu, model), by_tp in profiles.items():
        for tp in by_tp:
            others = [profile for degree, profile in by_tp.items() if degree != tp]
            if len(others) > 1:
                llm = find_llm(model.removesuffix("-FP8"))
                estimate = across_tp(others, tp, llm, find_gpu(gpu))
                measured = points[gpu, model, tp]
                predicted_s = estimate.predict(measured)
                for phase, error in by_phase(predicted_s, measured).items():
                    left_out[phase].append(error)
    for phase, values in left_out.items():
        row(f"kernel sums, {phase}, a TP degree left out", values)


def by_phase(predicted_s: np.ndarray, points: Points) -> dict[str, float]:
    error = np.abs(predicted_s / points.seconds - 1)
    return {
        name: float(error[points.phase == code].mean())
        for code, name in enumerate(PHASES)
        if (points.phase == code).any()
    }


def splitwise(path: Path) -> None:
    if missing(path, "Splitwise"):
        return
    llama = find_llm("Llama-2-70B")
    seen, linear, left_out = defaultdict(list), defaultdict(list), defaultdict(list)
    for hardware in ("a100-80gb", "h100-80gb"):
        gpu = find_gpu(hardware)
        profiles, runs = {}, {}
        for tp in (2, 4, 8):
            where = {"hardware": hardware, "tp": str(tp)}
            points = read_measurements(path, ImportOptions(where=where))
            assert isinstance(points, Points)
            fitted, aladdin = fit(points), fit(points, form="aladdin")
            for phase in ("prefill", "decode"):
                seen[hardware, phase].append(fitted.errors[phase].held_out_mean_abs)
                linear[hardware, phase].append(aladdin.errors[phase].held_out_mean_abs)
            what = Identity(gpu.name, llama.name, tp, "vllm", "Splitwise", "measured")
            profiles[tp], runs[tp] = profile_of(fitted, points, what), points
        for tp, points in runs.items():
            others = [profile for degree, profile in profiles.items() if degree != tp]
            predicted_s = across_tp(others, tp, llama, gpu).predict(points)
            for phase, error in by_phase(predicted_s, points).items():
                left_out[hardware, phase].append(error)
    names = {"prefill": "prompt_time", "decode": "token_time"}
    for (hardware, phase), errors in seen.items():
        what = f"Splitwise Llama-2-70B, {hardware}, {names[phase]}"
        row(what, errors, "5 %")
        row(f"{what}, Aladdin's linear forms", linear[hardware, phase])
        row(f"{what}, a TP degree left out", left_out[hardware, phase], "15 %")


def vidur(path: Path) -> None:
    if missing(path, "Vidur's predictor"):
        return
    rows = defaultdict(list)
    with open(path, encoding="utf-8") as file:
        for line in csv.DictReader(file):
            key = tuple(
                line[name] for name in ("model", "device", "tp", "attention_source")
            )
            batch, tokens = float(line["batch_size"]), float(line["total_tokens"])
            context = float(line["avg_context"])
            rows[key].append(
                (line["kind"], batch, tokens, context, float(line["iter_ms"]) / 1e3)
            )
    errors = defaultdict(list)
    for measured in rows.values():
        if {"prefill", "decode"} <= {line[0] for line in measured}:
            points = points_from_rows(measured)
            chosen, linear = fit(points), fit(points, form="aladdin")
            for phase in ("prefill", "decode"):
                errors[phase, ""].append(chosen.errors[phase].held_out_mean_abs)
                errors[phase, ", Aladdin's linear forms"].append(
                    linear.errors[phase].held_out_mean_abs
                )
    for (phase, how), values in errors.items():
        row(f"Vidur's predictor, {phase}{how}", values)


def kv_cache(path: Path) -> None:
    if missing(path, "KV capacity"):
        return
    token_errors = []
    with open(path, encoding="utf-8") as file:
        for line in csv.DictReader(file):
            if not line["kv_tokens_total"]:
                continue
            llm = find_llm(line["model"].removesuffix("-FP8"))
            tp, dtype = int(line["tp"]), "fp8" if "FP8" in line["model"] else None
            stated = float(line["kv_bytes_per_token_per_gpu"])
            # Its FP8 rows hold their KV in FP8 too.
            kv_dtype = dtype or "bf16"
            counted = llm.kv_bytes_per_token_per_gpu(tp, kv_dtype)
            token_errors.append(abs(counted / stated - 1))
    row("KV bytes per token against memory.csv", token_errors, "0.1 %")


if __name__ == "__main__":
    main()
