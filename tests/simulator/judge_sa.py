"""SA scheduling step by step: lists of lists for a plan, one move at a time."""

import itertools
import math

ROUNDING, ROUNDING_S = 1 + 1e-9, 1e-9


def sa(replica, settings):
    """Serve as vLLM V1 does, the queue in planned order."""
    waiting, static = replica.waiting, settings["batches"] == 1

    def before_admission(budget):
        seat = len(replica.running) < replica.engine.max_num_seqs
        wanted = seat and waiting and waiting[-1].batch == 0
        if static:
            wanted = waiting and not replica.running
        if wanted and budget > 0 and replica.retry_s == 0:  # each plan is used once
            replica.retry_s = plan(replica, settings)

    def may_admit(request):
        if replica.retry_s > replica.now_s + ROUNDING_S:
            return False
        replica.retry_s = 0
        came_since = request.batch == 0 and waiting[-1].batch == 0
        return request.batch == 1 if static else not came_since

    def admit(request):
        return replica.admitted(request) if may_admit(request) else None

    replica.go_on()
    if not replica.made_way:
        before_admission(replica.budget)
        replica.take_from_queue(admit)
    return replica.parts, replica.made_way


def plan(replica, settings):
    """Reorder the oldest of the queue that never ran; return when that is done."""
    front = [request for request in replica.waiting if request.preemptions > 0]
    queue = [request for request in replica.waiting if request.preemptions == 0]
    queue.sort(key=lambda request: request.row)
    planned, rest = queue[: settings["window"]], queue[settings["window"] :]
    for request in front:
        request.batch = 1
    if not planned:
        return replica.now_s
    begins_s = replica.now_s
    if settings["batches"] == 0:
        newest = max(queue, key=lambda request: request.row)
        begins_s = newest.arrival_s + replica.tables.request_s
    replica.plans += 1
    seed = replica.seed * 1_000_003 + replica.index * 8_191 + replica.plans
    b = len(replica.running)
    delay_s = 0.0
    if b:
        left = max(
            max(r.predicted_count - (len(r.tokens) - r.prompt_count), 1)
            for r in replica.running
        )
        context = sum(
            len(r.tokens) for r in replica.running if r.computed >= r.known_at_admission
        )
        tables = replica.tables
        step_s = tables.decode_s[b] + tables.decode_context_s[b] * context
        delay_s = left * float(step_s)
    batches = annealed(
        planned,
        replica.engine.max_num_seqs,
        delay_s,
        seed % 2147483646 + 1,
        settings,
        replica,
    )
    for number, batch in enumerate(batches, start=1):
        for request in batch:
            request.batch = number
    for request in rest:
        request.batch = 10**9
    replica.waiting.clear()
    replica.waiting.extend([*front, *itertools.chain(*batches), *rest])
    return (
        begins_s + settings["plan_fixed_s"] + settings["plan_request_s"] * len(planned)
    )


def times_s(request, b, replica):
    """Time of its prompt and of its tokens in a batch of b."""
    tables, engine = replica.tables, replica.engine
    most = min(engine.max_num_batched_tokens, len(tables.fused_s) - 1)
    tokens, first_s = b * request.prompt_count, 0.0
    while tokens > 0:
        first_s += tables.fused_s[min(tokens, most)]
        tokens -= most
    first_s += tables.attention_s * b * request.prompt_count**2 / 2
    b = min(b, len(tables.decode_s) - 1)
    rest_s = sum(
        tables.decode_s[b] + tables.decode_context_s[b] * b * (request.prompt_count + k)
        for k in range(1, request.predicted_count + 1)
    )
    return float(first_s), float(rest_s)


def objective(batches, delay_s, replica):
    """Requests that keep their SLO per second of their end-to-end times."""
    kept, total_s, begins_s = 0, 0.0, delay_s
    for batch in batches:
        longest_s = 0.0
        for request in batch:
            first_s, rest_s = times_s(request, len(batch), replica)
            waited_s = replica.now_s - request.arrival_s
            ttft_s, e2e_s = (
                waited_s + begins_s + first_s,
                waited_s + begins_s + first_s + rest_s,
            )
            slo = request.slo
            kept += (
                ttft_s <= slo.ttft_s * ROUNDING
                and rest_s <= slo.tpot_s * request.predicted_count * ROUNDING
                and e2e_s <= slo.e2e_s * ROUNDING
            )
            total_s += e2e_s
            longest_s = max(longest_s, first_s + rest_s)
        begins_s += longest_s
    return kept / total_s, kept


def cut(requests, b_max):
    return [requests[k : k + b_max] for k in range(0, len(requests), b_max)]


def annealed(requests, b_max, delay_s, seed, settings, replica):
    """Algorithm 1, the best plan kept."""

    def worth(batches):
        return objective(batches, delay_s, replica)[0]

    in_order = cut(requests, b_max)
    by_time = []  # those that take as long stay in order
    for request in requests:
        took_s = sum(times_s(request, b_max, replica)) * ROUNDING
        place = len(by_time)
        while place and sum(times_s(by_time[place - 1], b_max, replica)) > took_s:
            place -= 1
        by_time.insert(place, request)
    by_time = cut(by_time, b_max)
    kept_all = objective(by_time, delay_s, replica)[1] == len(requests)
    if kept_all and settings["early_return"]:
        return by_time
    now = by_time if worth(by_time) * ROUNDING >= worth(in_order) else in_order
    best = now
    if len(requests) == 1:
        return best
    draws = minimal_standard(seed)
    temperature = settings["hottest"]
    while temperature >= settings["coldest"]:
        for _ in range(int(settings["moves"])):
            found = moved(now, b_max, draws, len(requests))
            if found is None:
                continue
            accepted = worth(found) > worth(now) * ROUNDING
            if not accepted and settings["accept"] == 0:
                chance = math.exp((worth(found) - worth(now)) / temperature)
                accepted = next(draws) / 2147483647 < chance
            if accepted:
                now = found
                best = now if worth(now) > worth(best) * ROUNDING else best
        temperature *= settings["decay"]
    return best


def minimal_standard(seed):
    while True:
        seed = seed * 48271 % 2147483647
        yield seed


def moved(batches, b_max, draws, n):
    """Squeeze, delay or swap; None when the move cannot be made."""
    batches = [list(batch) for batch in batches]
    places = [(k, j) for k, batch in enumerate(batches) for j in range(len(batch))]
    kind = next(draws) % 3
    k, j = places[next(draws) % n]
    if kind == 0:
        if k == 0 or len(batches[k - 1]) >= b_max:
            return None
        batches[k - 1].append(batches[k].pop(j))
    elif kind == 1:
        if k == len(batches) - 1:
            if len(batches[k]) < 2:
                return None
            batches.append([])
        elif len(batches[k + 1]) >= b_max:
            return None
        batches[k + 1].insert(0, batches[k].pop(j))
    else:
        m, i = places[next(draws) % n]
        batches[k][j], batches[m][i] = batches[m][i], batches[k][j]
    return [batch for batch in batches if batch]


def best_of_all(requests, b_max, delay_s, replica):
    """The highest objective of all orders and all cuts."""

    def cuts(n):
        if n == 0:
            yield []
        for first in range(1, min(b_max, n) + 1):
            for rest in cuts(n - first):
                yield [first, *rest]

    best = 0.0
    for order in itertools.permutations(requests):
        for sizes in cuts(len(requests)):
            rows = iter(order)
            batches = [[next(rows) for _ in range(size)] for size in sizes]
            best = max(best, objective(batches, delay_s, replica)[0])
    return best
