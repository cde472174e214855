"""Choose prompt lengths so that a whole batch decodes at the same context."""

from bisect import bisect_left


def prompts_for_equal_context(
    batch: int, context: int, budget_tokens: int
) -> list[int]:
    """Return prompt lengths after which all requests decode at one context or less.

    A request whose prompt ends earlier is shorter by the tokens that it decodes while
    others are prefilled. Where no lengths meet the context exactly, all are equally
    short. ``context`` is the KV length, new token included, in the first iteration
    without prefill; ``budget_tokens`` go to decoding requests first.

    Examples
    --------
    Two prompts of 100 do not fit a budget of 150: the first decodes once, while the
    rest of the second is prefilled.

    >>> prompts_for_equal_context(2, 101, 150)
    [99, 100]
    """
    # The later the last prompt is assumed to end, the shorter all are, and the sooner
    # it does end: bisect for the iteration where both agree.
    last = bisect_left(
        range(batch * context),
        True,
        key=lambda last: _lengths(batch, context, budget_tokens, last)[1] <= last,
    )
    return _lengths(batch, context, budget_tokens, last)[0]


def _lengths(
    batch: int, context: int, budget_tokens: int, last: int
) -> tuple[list[int], int]:
    """Return lengths if the last prompt ends in iteration ``last``, and when it does.

    First come, first served; a complete prompt decodes one token in every later
    iteration, before other prompts get a share of the budget.
    """
    lengths: list[int] = []
    iteration = spent = 0
    room = budget_tokens
    while True:
        # Ending now, it decodes in all iterations up to the last.
        length = max(1, context - 1 - max(0, last - iteration))
        if spent + room >= length:
            room -= length - spent
            spent = 0
            lengths.append(length)
            if len(lengths) == batch:
                return lengths, iteration
        else:
            spent += room
            iteration += 1
            room = budget_tokens - len(lengths)
