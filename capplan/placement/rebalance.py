"""Move new requests so that prediction errors cancel: Aladdin's Algorithm 2.

Aladdin, section 4.3. On each worker l^e and b^e are the errors in tokens and requests.
Eq. 4 is a line in (context, batch), alpha * l + beta * b = constant, with alpha the
iteration time per token of context and beta that per request. The parallel through
(l^e, b^e) is the worker's error line; its distance from the origin measures the error.
"""

from dataclasses import dataclass

import numpy as np

from capplan.placement.replica import PlacementReplica


@dataclass(frozen=True, eq=False)
class EstimationErrors:
    """Prediction errors of each worker, columns of shape (workers,).

    They are positive where outputs are longer than predicted.
    """

    tokens: np.ndarray  # l^e [tokens]
    requests: np.ndarray  # b^e [requests]


def estimation_errors(
    workers: int,
    *,
    running_worker: np.ndarray,
    running_generated_tokens: np.ndarray,
    running_predicted_tokens: np.ndarray,
    running_predicted_again_tokens: np.ndarray,
    finished_worker: np.ndarray,
    finished_output_tokens: np.ndarray,
    finished_predicted_tokens: np.ndarray,
) -> EstimationErrors:
    """Return l^e and b^e of each worker (Algorithm 2, lines 4 to 18).

    A running request that has outrun its prediction adds its second prediction and one
    request; one that finished early subtracts its unused tokens and one request.

    Parameters
    ----------
    workers
        Number of workers.
    running_worker, running_generated_tokens, running_predicted_tokens
        Worker, tokens so far and prediction of each ongoing request, shape (n,).
    running_predicted_again_tokens
        Second prediction l'_pred of each ongoing request, shape (n,). [tokens]
    finished_worker, finished_output_tokens, finished_predicted_tokens
        Worker, output length and prediction of each request finished since the last
        heartbeat, shape (m,).
    """
    tokens, requests = np.zeros(workers), np.zeros(workers)
    under = running_generated_tokens > running_predicted_tokens
    np.add.at(tokens, running_worker[under], running_predicted_again_tokens[under])
    np.add.at(requests, running_worker[under], 1)
    over = finished_output_tokens < finished_predicted_tokens
    unused = (finished_output_tokens - finished_predicted_tokens)[over]
    np.add.at(tokens, finished_worker[over], unused)
    np.add.at(requests, finished_worker[over], -1)
    return EstimationErrors(tokens, requests)


@dataclass(frozen=True, eq=False)
class Rebalance:
    """New assignment of the new requests."""

    worker: np.ndarray  # of each new request, (n,)
    moved: np.ndarray  # rows that changed their worker
    distance_before: float  # sum of the error lines' distances from the origin
    distance_after: float


def rebalance(
    template: PlacementReplica,
    batch: np.ndarray,
    errors: EstimationErrors,
    new_worker: np.ndarray,
    new_predicted_tokens: np.ndarray,
) -> Rebalance:
    """Move new requests between workers to cancel errors (lines 19 to 29).

    Longest prediction first, each request on an overloaded worker moves to the most
    underloaded one if that reduces the sum of distances. The paper states the minimum,
    not the search for it; this is one pass over the requests.

    Parameters
    ----------
    template
        Every worker.
    batch
        Requests on each worker, new ones included, shape (workers,).
    errors
        l^e and b^e of each worker.
    new_worker
        Worker of each new request, shape (n,).
    new_predicted_tokens
        Its predicted output, shape (n,). [tokens]

    Raises
    ------
    ValueError
        When the shapes do not agree.
    """
    if len(batch) != len(errors.tokens) or len(new_worker) != len(new_predicted_tokens):
        raise ValueError(
            f"{len(batch)} batches for {len(errors.tokens)} workers, "
            f"{len(new_predicted_tokens)} predictions for {len(new_worker)} requests"
        )
    token_s, request_s = _slopes(template, np.asarray(batch))
    norm = np.hypot(token_s, request_s)
    # Where neither tokens nor requests take time, no error is a distance.
    norm[norm == 0] = 1.0
    per_token = (token_s / norm).tolist()
    per_request = (request_s / norm).tolist()
    # Distance of each error line from the origin; the sign says on which side it is.
    signed = ((token_s * errors.tokens + request_s * errors.requests) / norm).tolist()
    before = sum(map(abs, signed))
    worker = np.array(new_worker, np.int64)
    moved = []
    predicted = np.asarray(new_predicted_tokens).tolist()
    for request in np.argsort(-np.array(predicted), kind="stable").tolist():
        x = int(worker[request])
        if signed[x] <= 0:
            continue
        y = signed.index(min(signed))
        if x == y:
            continue
        tokens = predicted[request]
        after_x = signed[x] - per_token[x] * tokens - per_request[x]
        after_y = signed[y] + per_token[y] * tokens + per_request[y]
        if abs(after_x) + abs(after_y) < abs(signed[x]) + abs(signed[y]):
            signed[x], signed[y] = after_x, after_y
            worker[request] = y
            moved.append(request)
    after = sum(map(abs, signed))
    return Rebalance(worker, np.array(sorted(moved), np.int64), before, after)


def _slopes(
    template: PlacementReplica, batch: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return alpha [s/token] and beta [s/request] of each worker's Eq. 4 line."""
    last = template.max_batch
    here = np.clip(batch, 1, last)
    token_s = template.decode_context_s[here]
    # The table is no line: its slope about the batch, from one request to either side.
    up, down = np.minimum(here + 1, last), np.maximum(here - 1, 1)
    run = np.maximum(up - down, 1)
    request_s = (template.decode_s[up] - template.decode_s[down]) / run
    return token_s, np.maximum(request_s, 0.0)
