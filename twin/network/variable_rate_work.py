"""Work that takes a known time at a constant pace, when the pace changes on the way."""


class Work:
    """A piece of work with integer-exact progress.

    At one pace it takes `full_ns`. When the pace changes, the fraction still to do is kept, so that
    left' = round(left * full' / full), in integers of any size. `None` as pace means that nothing moves.
    Times are integer nanoseconds.
    """

    __slots__ = ("full_ns", "left_ns", "since_ns", "stalled")

    def __init__(self, now_ns: int, full_ns: int | None) -> None:
        self.since_ns = now_ns
        self.stalled = full_ns is None
        # Work that starts at pace None is all left; 1 of 1 says so without loss.
        self.full_ns = self.left_ns = 1 if full_ns is None else full_ns

    @property
    def end_ns(self) -> int | None:
        """When it is done at the present pace; None while nothing moves."""
        return None if self.stalled else self.since_ns + self.left_ns

    @property
    def done(self) -> tuple[int, int]:
        """Fraction done at the last `settle`, as numerator and denominator."""
        return (self.full_ns - self.left_ns, self.full_ns) if self.full_ns else (1, 1)

    def settle(self, now_ns: int) -> None:
        """Bring the progress up to `now_ns`."""
        if not self.stalled:
            self.left_ns = max(0, self.left_ns - (now_ns - self.since_ns))
        self.since_ns = now_ns

    def repace(self, now_ns: int, full_ns: int | None) -> None:
        """From now on the whole of it would take `full_ns`."""
        self.settle(now_ns)
        self.stalled = full_ns is None
        if full_ns is not None:
            if self.full_ns:
                self.left_ns = (self.left_ns * full_ns + self.full_ns // 2) // self.full_ns
            self.full_ns = full_ns
