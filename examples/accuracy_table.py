"""Print how accurate the latency models are on what they have not seen.

Without arguments: what the shipped profiles recorded when they were fitted (5-fold,
held out). With ``--data FOLDER``, everything is fitted anew from the raw tables in it,
Aladdin's plain forms beside, and what is not there is named:

    python examples/accuracy_table.py --data ../shared/data

``iteration_times/vllm_kernel_sum.csv.gz``, ``iteration_times/memory.csv``,
``iteration_times/vidur_predictor.csv`` and ``measured/splitwise_llama2_70b.csv``.
"""

import argparse
import csv
import statistics
import warnings
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from capplan.deployment import EngineSettings, kv_blocks
from capplan.errors import CapplanWarning
from capplan.fleet.catalog import gpu as find_gpu
from capplan.latency.catalog import list_profiles
from capplan.latency.fit import Fit, fit
from capplan.latency.fitted_profile import Identity, profile_of
from capplan.latency.importers import read_measurements
from capplan.latency.importers.identity import GPU_NAMES
from capplan.latency.importers.options import ImportOptions
from capplan.latency.measurements import Points, points_from_rows
from capplan.latency.profile_file import load_profile
from capplan.latency.refit import EXPERT_RATES, configurations
from capplan.latency.roofline import roofline_profile
from capplan.latency.transfer import across_tp
from capplan.llm.catalog import llm as find_llm

PHASES = ("prefill", "decode", "mixed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of the raw tables")
    data = parser.parse_args().data
    warnings.simplefilter("ignore", CapplanWarning)
    print("| on | median configuration | worst configuration | target |")
    print("|---|---|---|---|")
    shipped()
    if data is None:
        print("\nNo --data: only what the shipped profiles recorded is shown.")
        return
    kernel_sums(data / "iteration_times")
    splitwise(data / "measured" / "splitwise_llama2_70b.csv")
    vidur(data / "iteration_times" / "vidur_predictor.csv")
    kv_cache(data / "iteration_times" / "memory.csv")


def row(what: str, errors: Iterable[float], target: str = "") -> None:
    found = list(errors)
    if not found:
        print(f"| {what} | absent | absent | {target} |")
        return
    median, worst = statistics.median(found), max(found)
    print(f"| {what} ({len(found)}) | {median:.2%} | {worst:.2%} | {target} |")


def missing(path: Path, what: str) -> bool:
    if not path.exists():
        print(f"| {what}: {path.name} is absent | – | – | |")
    return not path.exists()


def shipped() -> None:
    """Held-out errors recorded in the shipped profiles of kernel sums."""
    profiles = [load_profile(path) for path in list_profiles()]
    targets = {"prefill": "2.5 / 8 %", "decode": "2 / 6 %", "mixed": "2.5 / 8 %"}
    for mixture in (False, True):
        kind = "mixtures of experts" if mixture else "dense"
        for phase in PHASES:
            target = targets[phase]
            if mixture:
                target = "4 / 8 %" if phase == "decode" else ""
            errors = [
                one.errors[phase].held_out_mean_abs or 0.0
                for one in profiles
                if one.how == "kernel-sum" and (one.llm in EXPERT_RATES) == mixture
            ]
            row(f"shipped profiles, {kind}, {phase}", errors, target)


def kernel_sums(folder: Path) -> None:
    iterations, memory = folder / "vllm_kernel_sum.csv.gz", folder / "memory.csv"
    if missing(iterations, "kernel sums") or missing(memory, "kernel sums"):
        return
    errors = defaultdict(list)
    groups: dict[str, list[Fit]] = defaultdict(list)
    profiles, points = defaultdict(dict), {}
    for one in configurations(iterations, memory):
        if not all(one.points.counts().values()):
            continue
        kind = "mixtures" if one.model in EXPERT_RATES else "dense"
        chosen = fit(one.points, expert_rate=EXPERT_RATES.get(one.model))
        plain = fit(one.points, form="aladdin")
        groups[kind].append(chosen)
        for phase in PHASES:
            errors[kind, phase, "unseen points"].append(
                chosen.errors[phase].held_out_mean_abs
            )
            errors[kind, phase, "Aladdin's plain form"].append(
                plain.errors[phase].held_out_mean_abs
            )
        gpu = GPU_NAMES[one.system]
        what = Identity(gpu, one.model, one.tp, "vllm", "kernels", "kernel-sum")
        profiles[gpu, one.model][one.tp] = profile_of(chosen, one.points, what)
        points[gpu, one.model, one.tp] = one.points
        roof = roofline_profile(
            find_llm(one.model.removesuffix("-FP8")),
            find_gpu(gpu),
            one.tp,
            weight_dtype="fp8" if one.model.endswith("FP8") else None,
        )
        for phase, error in by_phase(roof.predict(one.points), one.points).items():
            errors["all", phase, "roofline alone"].append(error)
    for (kind, phase, how), found in errors.items():
        row(f"kernel sums, {kind}, {phase}, {how}", found)
    for kind, fits in groups.items():
        for part in ("decode", "fused"):
            unseen = [
                score.held_out_groups
                for one in fits
                for score in one.scores
                if score.chosen and score.part == part
            ]
            row(f"kernel sums, {kind}, {part}, whole sizes left out", unseen)
    left_out = defaultdict(list)
    for (gpu, model), found in profiles.items():
        for tp in found:
            others = [one for degree, one in found.items() if degree != tp]
            if len(others) > 1:
                llm = find_llm(model.removesuffix("-FP8"))
                guess = across_tp(others, tp, llm, find_gpu(gpu))
                measured = points[gpu, model, tp]
                for phase, error in by_phase(guess.predict(measured), measured).items():
                    left_out[phase].append(error)
    for phase, found in left_out.items():
        row(f"kernel sums, {phase}, a TP degree left out", found)


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
    seen, plain, left_out = defaultdict(list), defaultdict(list), defaultdict(list)
    for hardware in ("a100-80gb", "h100-80gb"):
        gpu = find_gpu(GPU_NAMES[hardware])
        profiles, runs = {}, {}
        for tp in (2, 4, 8):
            where = {"hardware": hardware, "tp": str(tp)}
            points = read_measurements(path, ImportOptions(where=where))
            assert isinstance(points, Points)
            fitted, aladdin = fit(points), fit(points, form="aladdin")
            for phase in ("prefill", "decode"):
                seen[hardware, phase].append(fitted.errors[phase].held_out_mean_abs)
                plain[hardware, phase].append(aladdin.errors[phase].held_out_mean_abs)
            what = Identity(gpu.name, llama.name, tp, "vllm", "Splitwise", "measured")
            profiles[tp], runs[tp] = profile_of(fitted, points, what), points
        for tp, points in runs.items():
            others = [one for degree, one in profiles.items() if degree != tp]
            guess = across_tp(others, tp, llama, gpu).predict(points)
            for phase, error in by_phase(guess, points).items():
                left_out[hardware, phase].append(error)
    names = {"prefill": "prompt_time", "decode": "token_time"}
    for (hardware, phase), found in seen.items():
        what = f"Splitwise Llama-2-70B, {hardware}, {names[phase]}"
        row(what, found, "5 %")
        row(f"{what}, Aladdin's plain form", plain[hardware, phase])
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
    for found in rows.values():
        if {"prefill", "decode"} <= {line[0] for line in found}:
            points = points_from_rows(found)
            chosen, plain = fit(points), fit(points, form="aladdin")
            for phase in ("prefill", "decode"):
                errors[phase, ""].append(chosen.errors[phase].held_out_mean_abs)
                errors[phase, ", Aladdin's plain form"].append(
                    plain.errors[phase].held_out_mean_abs
                )
    for (phase, how), found in errors.items():
        row(f"Vidur's predictor, {phase}{how}", found)


def kv_cache(path: Path) -> None:
    if missing(path, "KV capacity"):
        return
    token_errors, capacity_errors = [], []
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
            blocks = kv_blocks(
                llm,
                find_gpu(GPU_NAMES[line["system"]]),
                tp,
                EngineSettings(),
                gpu_memory_utilization=float(line["memory_fraction"]),
                weight_dtype=dtype,
                kv_dtype=kv_dtype,
            )
            capacity_errors.append(
                abs(16 * blocks / float(line["kv_tokens_total"]) - 1)
            )
    row("KV bytes per token against memory.csv", token_errors, "0.1 %")
    row("KV tokens against memory.csv (an estimate too)", capacity_errors, "8 %")


if __name__ == "__main__":
    main()
