"""Work of known duration at a constant rate whose rate changes before it is done."""


class Work:
    """A piece of work with integer-exact progress; times are integer nanoseconds.

    At the present rate all of it takes `full_ns`, None: no progress. When the rate changes the fraction
    still to do is kept: left' = round(left * full' / full), in integers of any size.
    """

    __slots__ = ("full_ns", "left_ns", "since_ns", "stalled")

    def __init__(self, now_ns: int, full_ns: int | None) -> None:
        self.since_ns = now_ns
        self.stalled = full_ns is None
        # Work that starts without progress has all of it left, whatever its unit: 1 of 1.
        self.full_ns = self.left_ns = 1 if full_ns is None else full_ns

    @property
    def done(self) -> tuple[int, int]:
        """Fraction done at the last `settle`, as numerator and denominator."""
        return (self.full_ns - self.left_ns, self.full_ns) if self.full_ns else (1, 1)

    def settle(self, now_ns: int) -> None:
        """Bring the progress up to `now_ns`."""
        if not self.stalled:
            self.left_ns = max(0, self.left_ns - (now_ns - self.since_ns))
        self.since_ns = now_ns

    def set_full_time(self, now_ns: int, full_ns: int | None) -> None:
        """Change the rate: all of it would take `full_ns` from now on; None: no progress."""
        self.settle(now_ns)
        self.stalled = full_ns is None
        if full_ns is not None:
            if self.full_ns:
                self.left_ns = (self.left_ns * full_ns + self.full_ns // 2) // self.full_ns
            self.full_ns = full_ns
