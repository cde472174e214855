"""The one window that decides the last replicas: which, and what does without it."""

from contextlib import suppress

from capplan.errors import HostFullError
from capplan.planning.evaluate.executors import Interrupted
from capplan.planning.evaluate.run import Run, run_of
from capplan.planning.load.worst_windows import WithoutWindow
from capplan.planning.plan.told import Told


def without_window_of(told: Told) -> WithoutWindow | None:
    """Return the fewest replicas that hold all windows but one, and their bill.

    None where one replica fewer than the best misses the target in several windows, or
    in none that is judged.
    """
    best, deployment = told.best, told.run.deployment
    count = best.replica_count or 1
    low = [
        row
        for probe in best.probes
        if probe.replica_count == count - 1 and probe.stable
        for row in probe.windows
        if row.is_judged and row.is_alone
    ]
    if not told.may_vary or not low:
        return None
    (window,) = low
    told.progress("leaving out the hour that decides the last replica")
    runs: dict[int, Run] = {}

    def holds(fewer: int) -> bool:
        run = run_of(told.inputs, deployment.with_replicas(fewer)).without_requests()
        worst = next(row for row in run.judgement.in_windows.worst if row.is_judged)
        within = window.start_s <= worst.start_s and worst.end_s <= window.end_s
        runs[fewer] = run
        return run.judgement.stable and (worst.meets or (worst.is_alone and within))

    most, step = count - 1, 1
    with suppress(Interrupted, HostFullError):
        is_held = holds(most)
        while is_held and step:
            # Twice as far after a count that holds, half as far after one that misses.
            held = most > step and most - step not in runs and holds(most - step)
            most, step = (most - step, 2 * step) if held else (most, step // 2)
    run = runs.get(most)
    if run is None:
        return None
    usd = None if run.cost is None else run.cost.usd_per_month
    return WithoutWindow(window, most, run.deployment.gpu_count, usd)
