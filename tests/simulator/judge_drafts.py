"""How many drafts are accepted: drawn for each iteration of a request.

With ``line`` the tokens between the first and the last iteration come on the straight
line that the simulator takes; without, each iteration gives what was drawn for it.
"""

from judge_request import Part, Request

LOW = 0xFFFFFFFF
PARTS = 2**20


class Draws:
    """What is drawn for the requests of a replica."""

    def __init__(self, rates: tuple[float, ...], seed: int, line: bool) -> None:
        self.rates, self.seed, self.line = rates, seed, line

    def gained(self, part: Part) -> Part:
        """Return a part with the tokens it gives, and the context that it reads."""
        request = part.request
        if not self.rates:
            return part._replace(gained=1)
        if not request.kv:  # its prompt ends
            request.kv, request.contexts = [len(request.tokens)], []
            self.draw(request)
            return part._replace(gained=1)
        i = request.ran
        request.ran += 1
        turn = request.drawn + request.ran
        if i >= len(request.contexts):  # in vain
            return part._replace(context=request.kv[-1] + 1.0, turn=turn)
        if part.drafts < len(self.rates):
            del request.kv[i + 1 :], request.contexts[i:]
            most = min(part.new, self.gain(request, turn - 1))
            request.contexts.append(request.kv[i] + 1.0)
            request.kv.append(request.kv[i] + most)
            self.draw(request)
        gained = request.kv[i + 1] - request.kv[i]
        return part._replace(context=request.contexts[i], gained=gained, turn=turn)

    def draw(self, request: Request) -> None:
        """Draw the iterations of a request behind those that it has."""
        began, gains = request.kv.pop(), []
        while began + sum(gains) < request.last_count - 1:
            j = request.drawn + len(request.contexts) + len(gains)
            gains.append(self.gain(request, j))
        steps, rise = max(1, len(gains) - 1), sum(gains[:-1])
        for i in range(len(gains)):
            kv = began + (rise * i // steps if self.line else sum(gains[:i]))
            on_line = began + i * (rise * PARTS // steps) / PARTS
            request.kv.append(kv)
            request.contexts.append(1.0 + (on_line if self.line else kv))
        request.kv.append(began + sum(gains))

    def gain(self, request: Request, j: int) -> int:
        return 1 + accepted(self.rates, self.seed, request.row, j)


def mixed(number: int) -> int:
    for _ in range(2):
        number = ((number >> 16) ^ number) * 0x45D9F3B & LOW
    return (number >> 16) ^ number


def accepted(rates: tuple[float, ...], seed: int, row: int, j: int) -> int:
    """Return how many drafts are accepted in a request's iteration j."""
    key = mixed(mixed(row & LOW) ^ mixed((row >> 32) ^ ((seed + 0x51ED270B) & LOW)))
    both = mixed((key + (j // 2) * 0x9E3779B9) & LOW)
    share = (both >> 16 if j % 2 else both & 0xFFFF) / 2**16
    return sum(share < rate for rate in rates)
