"""Images of a replica that are encoded: vLLM 0.32, ``EncoderCacheManager``."""

from judge_request import Image, Request


class Encoder:
    """Encoder outputs of a replica; those that nobody refers to are dropped first."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.tokens: dict[tuple, int] = {}
        self.rows: dict[tuple, set[int]] = {}  # that refer to each
        self.left: list[tuple] = []  # those without, the first left first

    def refer(self, image: Image, row: int) -> bool:
        """Refer to an image if it is there."""
        if image.shows not in self.rows:
            return False
        if not self.rows[image.shows]:
            self.left.remove(image.shows)
        self.rows[image.shows].add(row)
        return True

    def has_room(self, tokens: int) -> bool:
        """Return whether so many tokens fit, without those that nobody refers to."""
        held = sum(self.tokens[each] for each, rows in self.rows.items() if rows)
        if held + tokens > self.size:
            return False
        while sum(self.tokens.values()) + tokens > self.size:
            gone = self.left.pop(0)
            del self.tokens[gone], self.rows[gone]
        return True

    def put(self, image: Image, row: int) -> None:
        self.tokens[image.shows] = image.end - image.begin
        self.rows[image.shows] = {row}
        assert sum(self.tokens.values()) <= self.size

    def leave(self, request: Request, computed: float) -> None:
        """Let a request refer no more to images that end within computed tokens."""
        for image in request.images:
            rows = self.rows.get(image.shows, set())
            if image.end <= computed and request.row in rows:
                rows.remove(request.row)
                if not rows:
                    self.left.append(image.shows)
