"""Small random cases of ranks that keep recurrent states."""

from dataclasses import replace

from cases import Case
from group_cases import GroupCase, random_rank_tables
from hypothesis import strategies as st
from random_cases import random_drafted_states, random_states
from recorded import as_recorded

from capplan.simulator.engine.group_queue import BALANCES


@st.composite
def state_cases(draw, drafts=False) -> GroupCase:
    """Draw a case as those recorded of engines that keep states, with ranks."""
    drawn = random_drafted_states if drafts else random_states
    trace, tables, engine = as_recorded(drawn(draw(st.integers(0, 10**6))))
    count = draw(st.integers(1, 4))
    engine = replace(
        engine,
        data_parallel_size=count,
        dp_balance=draw(st.sampled_from(BALANCES)),
    )
    case = Case(trace, tables, engine, draw(st.integers(1, 2)))
    ranks = random_rank_tables(draw(st.integers(0, 2**20)), count, case, False)
    return GroupCase(case, ranks, ())
