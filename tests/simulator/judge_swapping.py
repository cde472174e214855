"""Copies to and from the host, step by step: what is under way, and until when."""


class Links:
    """The two links of a replica, and the requests whose KV is on the host."""

    def __init__(self, replica):
        self.replica = replica
        self.block_s = replica.engine.block_link_s
        self.host_free = replica.engine.host_kv_blocks
        self.in_s = self.out_s = 0.0
        self.leaving = 0  # blocks in the free list that a copy out may not have left
        self.ready_s = {}

    def take(self, request, tokens):
        """Give a request blocks; wait for all copies out if clean ones are short."""
        pool = self.replica.pool
        wanted = pool.missing(request, tokens, [])
        if wanted > len(pool.free) - self.leaving:
            self.wait(self.out_s)
            self.leaving = 0
        pool.give(request, tokens, [])

    def wait(self, until_s):
        self.replica.gpu_s = max(self.replica.gpu_s, until_s)

    def begin(self, request, link_s):
        """When a copy can begin: after the one before, and after the request's own."""
        replica = self.replica
        ready_s = self.ready_s.get(request, 0.0)
        return max(link_s, ready_s, replica.now_s, replica.gpu_s)

    def out(self, request):
        blocks = len(request.blocks) + len(request.bounded)
        assert blocks <= self.host_free
        self.replica.pool.take_back(request)
        self.leaving += blocks
        self.host_free -= blocks
        request.host_blocks = blocks
        request.swaps += 1
        self.out_s = self.begin(request, self.out_s) + blocks * self.block_s
        self.ready_s[request] = self.out_s

    def back(self, request):
        blocks = request.host_blocks
        self.take(request, request.computed)
        self.host_free += blocks
        request.host_blocks = 0
        self.in_s = self.begin(request, self.in_s) + blocks * self.block_s
        self.ready_s[request] = self.in_s


def on_gpu(request):
    return bool(request.blocks or request.bounded)
