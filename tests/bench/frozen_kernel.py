"""A small simulation that never changes, to hold the simulator's speed against.

Requests join the shortest of some replicas; each replica prefills whole prompts, one
iteration each, then decodes all its requests together and jumps from one finish to the
next. No KV, no chunks, no pipeline: less than the simulator does, but of its kind: a
heap of finishes, lists through slots, floating-point clocks and many branches. Another
machine, compiler or load slows both alike, so that the ratio of both tells what a
change of the simulator did. Do not edit: the ratios recorded beside it would be void.
"""

import numba
import numpy as np


@numba.njit(cache=True, nogil=True)
def _sift(heap, key, at, size):
    while True:
        child = 2 * at + 1
        if child >= size:
            return
        if child + 1 < size and key[heap[child + 1]] < key[heap[child]]:
            child += 1
        if key[heap[at]] <= key[heap[child]]:
            return
        heap[at], heap[child] = heap[child], heap[at]
        at = child


@numba.njit(cache=True, nogil=True)
def _push(heap, key, size, row):
    at = size
    heap[at] = row
    while at > 0 and key[heap[(at - 1) // 2]] > key[heap[at]]:
        parent = (at - 1) // 2
        heap[at], heap[parent] = heap[parent], heap[at]
        at = parent


@numba.njit(cache=True, nogil=True)
def _advance(r, until_s, state, clock_s, queue, heaps, key, arrays, times):
    """Let one replica run until a time; state: queue ends, batch, step, context."""
    prompt, output, first_s, finish_s = arrays
    while clock_s[r] < until_s and (state[r, 0] != -1 or state[r, 2] > 0):
        if state[r, 0] != -1:
            row = state[r, 0]
            state[r, 0] = queue[row]
            if state[r, 0] == -1:
                state[r, 1] = -1
            b, context = state[r, 2], state[r, 4]
            clock_s[r] += times[0] + times[1] * prompt[row] + times[2] * b
            clock_s[r] += times[3] * context
            state[r, 3] += 1
            state[r, 4] += b
            first_s[row] = clock_s[r]
            if output[row] == 1:
                finish_s[row] = clock_s[r]
            else:
                key[row] = state[r, 3] + output[row] - 1
                _push(heaps[r], key, b, row)
                state[r, 2] = b + 1
                state[r, 4] += prompt[row] + 1
        else:
            b, context = state[r, 2], state[r, 4]
            row = heaps[r, 0]
            most = key[row] - state[r, 3]
            each_s = times[0] + times[2] * b + times[3] * context
            slope_s = times[3] * b
            n = most
            if clock_s[r] + n * (each_s + 0.5 * slope_s * (n - 1)) >= until_s:
                n = 1
                while n < most:
                    if clock_s[r] + n * (each_s + 0.5 * slope_s * (n - 1)) >= until_s:
                        break
                    n += 1
            clock_s[r] += n * (each_s + 0.5 * slope_s * (n - 1))
            state[r, 3] += n
            state[r, 4] += n * b
        while state[r, 2] > 0 and key[heaps[r, 0]] <= state[r, 3]:
            row = heaps[r, 0]
            finish_s[row] = clock_s[r]
            state[r, 2] -= 1
            state[r, 4] -= prompt[row] + output[row]
            state[r, 5] -= 1
            heaps[r, 0] = heaps[r, state[r, 2]]
            _sift(heaps[r], key, 0, state[r, 2])


@numba.njit(cache=True, nogil=True)
def serve(arrival_s, prompt, output, replicas, times):
    """Return when requests finish, shape (n,). [s]"""
    n = len(arrival_s)
    state = np.zeros((replicas, 8), np.int64)
    state[:, :2] = -1
    clock_s = np.zeros(replicas)
    queue = np.full(n, -1, np.int64)
    heaps = np.zeros((replicas, 4096), np.int64)
    key = np.zeros(n, np.int64)
    first_s, finish_s = np.zeros(n), np.zeros(n)
    arrays = (prompt, output, first_s, finish_s)
    for row in range(n + 1):
        now_s = arrival_s[row] if row < n else np.inf
        for r in range(replicas):
            _advance(r, now_s, state, clock_s, queue, heaps, key, arrays, times)
        if row == n:
            break
        best = 0
        for r in range(1, replicas):
            if state[r, 5] < state[best, 5]:
                best = r
        if state[best, 5] == 0:
            clock_s[best] = max(clock_s[best], now_s)
        state[best, 5] += 1
        if state[best, 1] == -1:
            state[best, 0] = row
        else:
            queue[state[best, 1]] = row
        state[best, 1] = row
    return finish_s
