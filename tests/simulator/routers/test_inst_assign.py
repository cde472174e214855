"""The case of InstAssign worked by hand."""

import numpy as np
from worked import TABLES, engine

from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.deployments import fleet_of


def test_the_replica_with_most_memory_left_until_none_has_enough():
    # 40 tokens each. 0, 1, 1 are charged 20, 10, 10; both have 20 left, 0 is
    # charged 10. 1 has 20 * .9 = 18 left for 18 tokens; nobody has 10: all anew.
    trace = Trace([9, 4, 4, 4, 9, 8], [9, 5, 5, 5, 9, 2], np.arange(6) / 10)

    simulation = simulate(trace, fleet_of(TABLES, engine(10), 2, router="inst-assign"))

    assert simulation.times.replica.tolist() == [0, 1, 1, 0, 1, 0]
