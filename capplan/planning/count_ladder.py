"""The fewest of which something holds, where it holds for all above as well."""

from collections.abc import Callable


def fewest_near(holds: Callable[[int], bool], about: int, most: int) -> int | None:
    """Return the fewest of 1 to ``most`` that hold, as all above are taken to; or None.

    Looks at ``about``, then further and further away on the side where the answer is,
    then bisects: two counts where the guess is right, or one too few.

    Examples
    --------
    >>> looked = []
    >>> fewest_near(lambda count: looked.append(count) or count >= 7, 7, 20), looked
    (7, [7, 6])
    """
    step, low, high = 1, 0, min(max(about, 1), most)
    if holds(high):
        while high > 1:
            low = max(1, high - step)
            if not holds(low):
                break
            low, high, step = 0, low, 2 * step
    else:
        while True:
            if high == most:
                return None
            low, high = high, min(most, high + step)
            if holds(high):
                break
            step *= 2
    return fewest_between(low, high, holds)


def fewest_that(
    holds: Callable[[int], bool], first: int, most: int, growth: float, low: int = 0
) -> int | None:
    """Return the fewest of 1 to ``most`` that hold, as do all above; None for none.

    From ``first`` on they grow by a factor, by one at least, until some hold; none up
    to ``low`` is looked at.

    Examples
    --------
    >>> fewest_that(lambda count: count >= 7, 2, 10, 1.5)
    7
    """
    high = first
    while not holds(high):
        if high == most:
            return None
        low, high = high, min(most, max(high + 1, int(high * growth)))
    return fewest_between(low, high, holds)


def fewest_between(
    low: int, high: int, holds: Callable[[int], bool], precision: float = 0.0
) -> int:
    """Return the fewest that holds, by bisection; ``low`` does not, ``high`` does.

    Or one that is above a count that does not by a share of ``precision`` at most.
    """
    while high - low > max(1, precision * high):
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high
