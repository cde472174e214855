"""Aladdin's best fit for the judge, with constraints (b) to (e) as in the paper.

Nie et al., arXiv:2405.06856, section 4.2 and Algorithm 1. KV is added up for every
future iteration; nothing is skipped because it cannot bind.
"""

import math

GAMMA = 0.5
THETA = 0.5


def known(replica, request):
    """Prompt and generated tokens, those in flight included."""
    parts = [part for batch in replica.in_flight for part in batch.parts]
    flying = sum(part.gained for part in parts if part.request is request)
    return min(len(request.tokens) + flying, request.last_count)


def is_prefilling(replica, request):
    return request in replica.running and request.computed < request.known_at_admission


def tokens_to_prefill(replica, request):
    if request in replica.running:
        return max(0, request.known_at_admission - request.computed)
    if known(replica, request) == request.prompt_count + request.output_count:
        return 0  # preempted, but its last token is in flight
    return known(replica, request)


def is_decoding(replica, request):
    return (
        request in replica.running
        and not is_prefilling(replica, request)
        and known(replica, request) < request.prompt_count + request.output_count
    )


def first_token_s(replica, request):
    if request.token_s:
        return request.token_s[0]
    return next(
        batch.end_s
        for batch in replica.in_flight
        for part in batch.parts
        if part.request is request and part.gained
    )


def outstanding(replica):
    return [*replica.running, *replica.waiting]


def context_tokens(requests):
    prompts = sum(request.prompt_count for request in requests)
    return prompts + GAMMA * sum(request.predicted_count for request in requests)


def meets_b(replica, new, slo):
    """The contexts leave each iteration within the TPOT SLO."""
    requests = [*outstanding(replica), new]
    b = len(requests)
    if b > replica.engine.max_num_seqs:
        return False
    spare_s = slo.mean_gap_s - replica.tables.decode_s[b]
    used_s = replica.tables.decode_context_s[b] * context_tokens(requests)
    return used_s <= THETA * spare_s


def meets_c_and_d(replica, new, now_s, slo):
    """Prefill ends within the TTFT SLO, and before decoding requests run late."""
    tokens = sum(tokens_to_prefill(replica, other) for other in outstanding(replica))
    tokens += new.prompt_count
    budget = replica.engine.max_num_batched_tokens
    full, rest = divmod(tokens, budget)
    prefill_s = full * replica.tables.fused_s[budget]
    prefill_s += replica.tables.fused_s[rest] if rest else 0.0
    if prefill_s > slo.ttft_s:
        return False
    for other in outstanding(replica):
        if is_decoding(replica, other) and not math.isinf(slo.mean_gap_s):
            generated = known(replica, other) - other.prompt_count
            elapsed_s = now_s - first_token_s(replica, other)
            if prefill_s > THETA * (slo.mean_gap_s * generated - elapsed_s):
                return False
    return True


def meets_e(replica, new):
    """KV fits in every future iteration."""
    bounded = replica.pool.bounded_tokens
    held_and_left = [(new.prompt_count + bounded(new), new.predicted_count)]
    for other in outstanding(replica):
        held = known(replica, other)
        generated = held - other.prompt_count
        left = max(1, other.predicted_count - generated)
        held_and_left.append((held + bounded(other), left))
    capacity = replica.engine.kv_capacity_tokens
    return all(
        sum(held + t for held, left in held_and_left if left >= t) <= capacity
        for t in range(1, max(left for _, left in held_and_left) + 1)
    )


def best_fit(replicas, index, draw, new, now_s, slo):
    """Return the fullest replica that meets (b) to (e), else the emptiest."""
    norms = [
        math.hypot(context_tokens(outstanding(replica)), len(outstanding(replica)))
        for replica in replicas
    ]
    allowed = [
        r
        for r, replica in enumerate(replicas)
        if meets_b(replica, new, slo)
        and meets_c_and_d(replica, new, now_s, slo)
        and meets_e(replica, new)
    ]
    if not allowed:
        return norms.index(min(norms))
    return max(allowed, key=lambda r: (norms[r], -r))
