"""vLLM V1 with images, one iteration at a time: judges ``vllm_v1_images``.

An image is encoded whole in the iteration that computes its first token. The cache is
a dict of images with the rows that refer to them; those without stand in a list.
"""

import numpy as np
from judge import Batch, Replica, judge_own


class Cache:
    """Encoder outputs of a replica, by what the image shows."""

    def __init__(self, size):
        self.size = size
        self.tokens = {}
        self.rows = {}  # that refer to each
        self.left = []  # those without, the first left first
        self.fewest_free = size

    def refer(self, image, row):
        """Refer to an image if it is there."""
        if image not in self.rows:
            return False
        if not self.rows[image]:
            self.left.remove(image)
        self.rows[image].add(row)
        return True

    def has_room(self, tokens):
        """Return whether so many tokens fit, without those that nobody refers to."""
        held = sum(self.tokens[each] for each, rows in self.rows.items() if rows)
        if held + tokens > self.size:
            return False
        while sum(self.tokens.values()) + tokens > self.size:
            gone = self.left.pop(0)
            del self.tokens[gone], self.rows[gone]
        return True

    def put(self, image, tokens, row):
        self.tokens[image] = tokens
        self.rows[image] = {row}
        free = self.size - sum(self.tokens.values())
        assert free >= 0
        self.fewest_free = min(self.fewest_free, free)

    def leave(self, image, row):
        if row in self.rows.get(image, ()):
            self.rows[image].remove(row)
            if not self.rows[image]:
                self.left.append(image)


class ImageReplica(Replica):
    """One engine with an encoder."""

    def __init__(self, tables, engine, trace):
        super().__init__(tables, engine, "vllm-v1")
        self.trace = trace
        self.cache = Cache(engine.images.cache_tokens(engine.max_num_batched_tokens))
        self.encoded = 0
        self.cut = 0  # chunks that end before an image

    def images(self, request):
        """Images of a request: what each shows, its first token and the one behind."""
        row, trace = request.row, self.trace
        if trace.images[row] == 0:
            return []
        tokens = int(trace.image_tokens[row] // trace.images[row])
        group = int(trace.prefix_group[row])
        shared = int(trace.prefix_tokens[row]) if group >= 0 else 0
        found = []
        for k in range(int(trace.images[row])):
            begin = int(trace.image_offset[row]) + k * tokens
            whose = ("group", group) if begin < shared else ("own", row)
            found.append(((*whose, k, tokens), begin, begin + tokens))
        return found

    def with_images(self, request, start, new):
        """Return the tokens of a chunk that can be computed, and what to encode."""
        to_encode, wanted = [], 0
        for image, begin, end in self.images(request):
            if end <= start or begin >= start + new:
                continue
            parted = start < begin and start + new < end
            if self.engine.images.disable_chunked_mm_input and parted:
                return begin - start, to_encode
            if self.cache.refer(image, request.row):
                continue
            wanted += end - begin
            if wanted > self.budget or not self.cache.has_room(wanted):
                return max(0, begin - start), to_encode
            to_encode.append((image, end - begin))
        return new, to_encode

    def encode(self, request, to_encode):
        for image, tokens in to_encode:
            self.cache.put(image, tokens, request.row)
            self.budget -= tokens
            self.times.append(self.engine.images.encode_s(tokens))

    def leave(self, request, computed):
        for image, _, end in self.images(request):
            if end <= computed:
                self.cache.leave(image, request.row)

    def schedule(self):
        self.budget = self.cache.size
        self.times = []
        budget = self.engine.max_num_batched_tokens
        parts, budget, preempted = self.go_on(budget)
        if not preempted:
            parts += self.admit_all(budget)
        if not parts:
            return Batch([], self.now_s)
        return Batch(self.started(parts), self.run(parts))

    def go_on(self, budget):
        parts, preempted = [], False
        for request in list(self.running):
            if request not in self.running or budget == 0 or self.is_over(request):
                continue
            new = len(request.tokens) + request.placeholders - request.computed
            asked = min(new, budget)
            new, to_encode = self.with_images(request, request.computed, asked)
            self.cut += new < asked
            if new == 0:
                continue
            tokens = request.computed + new
            while self.pool.missing(request, tokens, []) > len(self.pool.free):
                preempted = True
                victim = self.running.pop()
                self.preempt(victim)
                self.leave(victim, np.inf)
                if victim is request:
                    return parts, budget, preempted
            self.pool.give(request, tokens, [])
            self.pool.enter(request, min(tokens, len(request.tokens)))
            parts.append((request, request.computed, new))
            budget -= new
            self.encode(request, to_encode)
        sat_out = self.running and budget == 0
        self.pauses += bool(sat_out and len(parts) < len(self.running))
        return parts, budget, preempted

    def is_over(self, request):
        """Whether its last token is in flight."""
        return bool(
            request.placeholders
            and request.computed + 2 - request.placeholders
            >= request.prompt_count + request.output_count
        )

    def admit_all(self, budget):
        parts, set_aside = [], []
        while self.waiting and budget and self.seats_left > 0:
            request = self.waiting[0]
            if request.stale:
                set_aside.append(self.waiting.popleft())
                continue
            hits = self.pool.hits(request)
            start = len(hits) * self.engine.block_size
            asked = min(len(request.tokens) - start, budget)
            new, to_encode = self.with_images(request, start, asked)
            self.cut += new < asked
            if new == 0:
                break
            missing = self.pool.missing(request, len(request.tokens), hits)
            if missing > len(self.pool.free):
                self.leave(request, np.inf)
                break
            self.pool.give(request, start + new, hits)
            self.pool.enter(request, start + new)
            if request.scheduled_s is None:
                request.cached_tokens = start
            self.admit()
            parts.append((request, start, new))
            budget -= new
            self.encode(request, to_encode)
        self.waiting.extendleft(reversed(set_aside))
        return parts

    def run(self, parts):
        super().run(parts)
        if self.times:
            shared_s = sum(self.times) / self.engine.images.encoders
            images = self.engine.images
            encode_s = max(shared_s, max(self.times)) + images.call_s
            self.gpu_s += max(encode_s, images.least_s)
            self.encoded += len(self.times)
        return self.gpu_s

    def executed(self, request):
        self.leave(request, request.computed - request.placeholders)

    def finish(self, request):
        super().finish(request)
        self.leave(request, np.inf)


def judge_images(trace, tables, engine, replica_count):
    """Serve a trace step by step, by the shortest queue; return it and the replicas."""
    replicas = [ImageReplica(tables, engine, trace) for _ in range(replica_count)]
    return judge_own(replicas, trace)
