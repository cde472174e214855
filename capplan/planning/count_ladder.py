"""The fewest replicas near a count that is about right, by looking next to it."""

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
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high
