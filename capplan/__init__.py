"""capplan: offline capacity planner for LLM serving.

``plan``, ``simulate`` and ``search`` take the settings of the command line under
the same names; :mod:`capplan.planning.settings` lists them.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from capplan.planning.deployment_run import DeploymentRun
    from capplan.planning.result import Plan
    from capplan.planning.search import Search

__all__ = ["plan", "search", "simulate"]


def plan(**settings: Any) -> "Plan":
    """Return the fewest GPUs that serve a workload within its SLOs.

    Parameters
    ----------
    settings
        The settings of ``capplan plan``: ``trace`` or ``workload``, ``rate``,
        ``llm``, ``gpu``, ``tp``, ``slo``, ``attainment`` and so on. With
        ``out``, the three files of the report are written there.

    Raises
    ------
    CapplanError
        When a setting is wrong; the message says what would be right.
    """
    from capplan.files import check_folder
    from capplan.planning.plan import plan as answer
    from capplan.planning.settings import PlanSettings
    from capplan.report.files import write_plan

    request = PlanSettings(**settings)
    if request.out is not None:
        check_folder(request.out)
    result = answer(request)
    if request.out is not None:
        write_plan(result, request.out)
    return result


def simulate(**settings: Any) -> "DeploymentRun":
    """Return what one given deployment does with a workload.

    Parameters
    ----------
    settings
        Those of :func:`plan` and ``replicas``; with ``out``,
        ``record_iterations``, ``per_request`` or ``trace_events``, the files are
        written there.

    Raises
    ------
    CapplanError
        When a setting is wrong; the message says what would be right.
    """
    from capplan.planning.deployment_run import simulate_deployment
    from capplan.planning.settings import SimulateSettings
    from capplan.report.run_files import check_run_files, write_run_files

    request = SimulateSettings(**settings)
    check_run_files(request)
    run = simulate_deployment(request)
    write_run_files(run, request)
    return run


def search(**settings: Any) -> "Search":
    """Return the throughput per GPU of each GPU type and TP degree.

    Parameters
    ----------
    settings
        The settings of :func:`plan`; the rate does not matter.

    Raises
    ------
    CapplanError
        When a setting is wrong; the message says what would be right.
    """
    from capplan.planning.search import search as compare
    from capplan.planning.settings import PlanSettings

    return compare(PlanSettings(**settings))
