"""What the parts of a plan are made from."""

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

from capplan.deployment.configuration import Configuration
from capplan.planning.configure.excluded import Excluded
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.inputs import PlanInputs, Progress, configuration_of
from capplan.planning.evaluate.run import Run
from capplan.planning.settings.plan import PlanSettings
from capplan.planning.size.prospects import Prospect

if TYPE_CHECKING:
    from capplan.planning.plan.result import Plan


class Told(NamedTuple):
    """A plan with its best candidate, and what its parts are made from."""

    inputs: PlanInputs
    tried: list[Configuration | Excluded]
    plan: "Plan"  # with the parts before
    progress: Progress
    with_load: bool = False  # measure what a replica sustains

    @property
    def best(self) -> Candidate:
        """The best candidate."""
        assert self.plan.best is not None
        return self.plan.best

    @property
    def run(self) -> Run:
        """Its run."""
        assert self.best.run is not None
        return self.best.run

    @property
    def prospect(self) -> Prospect:
        """Its configuration and bound, where it is one pool."""
        best = self.best
        assert best.bound is not None
        return Prospect(configuration_of(self.tried, best.key), best.bound)

    @property
    def settings(self) -> PlanSettings:
        """As the user gave them."""
        return self.inputs.settings

    @property
    def is_timed(self) -> bool:
        """Whether the requests arrive at times of their own."""
        return self.inputs.load.process is None and self.inputs.load.is_open

    @property
    def may_vary(self) -> bool:
        """Whether more is to be simulated of the best, which is one pool."""
        return not self.plan.interrupted and not self.best.pools


def part(of: Callable[[Told], Any], default: Any = None, said: str = "") -> Any:
    """Return a field of a plan that a function makes where there is a best.

    ``said`` is the label under which the page says its ``str``; else the page has a
    section or a fact of its own for it.
    """
    return field(default=default, metadata={"of": of, "said": said})
