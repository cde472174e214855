"""Ranks that step together: as their judge, as the hand cases, and by their laws."""

import numpy as np
import pytest
from cases import EXAMPLES
from group_cases import group_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from judge import Verdict
from judge_group import judge_groups
from test_against_judge import assert_same


@pytest.mark.thorough
@settings(deadline=None, max_examples=8 * EXAMPLES)
@given(case=group_cases())
def test_every_request_gets_the_times_of_the_step_by_step_judge(case):
    simulation = case.simulated()

    requests, chosen, _ = judge_groups(
        case.case.trace,
        case.tables,
        case.graph_sizes,
        case.case.engine,
        case.case.replica_count,
    )

    assert_same(simulation, Verdict(requests, chosen, []))
