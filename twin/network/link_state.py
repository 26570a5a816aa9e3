"""The true state of the wide-area links over simulated time, from the trace.

The trace is read piece by piece, and the state is brought up to date when it is read. Only two kinds of
change wake the world: those of watched links, and links that die or come back.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from simpy import Environment

from ingest.core.units import to_ns
from twin.core.clock import TRUTH, At
from twin.core.domain import LinkState, Pair
from twin.traces.wan_trace import Times, Values, WanTrace

Watcher = Callable[[Sequence[Pair]], None]
NEVER = int(np.iinfo(np.int64).max)


class _Piece(NamedTuple):
    """Changes in the order of time; `flips`: those that kill or revive a link."""

    times_ns: Times
    rows: Times
    columns: Times
    bandwidth_bps: Values
    latency_s: Values
    flips: NDArray[np.bool_]


class Links:
    """Bandwidth and latency of every directed link now.

    `state` is updated in place; a link at 0 bit/s is dead. At the instant of a change the watchers are
    called with the watched pairs that changed, then `on_dead` or `on_alive` for each pair, watched or not,
    whose bandwidth fell to 0 or rose from it.
    """

    def __init__(self, env: Environment, trace: WanTrace) -> None:
        start = trace.at(0)
        self.env = env
        self.watchers: list[Watcher] = []
        self.on_dead: Callable[[Pair], None] = _ignore
        self.on_alive: Callable[[Pair], None] = _ignore
        self._state = LinkState(start.bandwidth_bps.copy(), start.latency_s.copy())
        self._watched = np.zeros(start.latency_s.shape, np.int64)
        self._pieces = trace.stream()
        self._piece: _Piece | None = None
        self._done = 0  # changes of the piece that are in the state
        self._next_ns = NEVER  # of the first change that is not
        self._wake_number = 0  # number of the wake-up that is valid
        self._reported_ns = -1  # changes up to here have been reported
        self._wakes: list[
            tuple[int, int, int]
        ] = []  # coming wake-ups (ns, first change, end), the next one last
        self._open_piece()
        self._schedule_wakes()

    @property
    def state(self) -> LinkState:
        """The state of every link now."""
        if self.env.now >= self._next_ns:
            self._apply()
        return self._state

    def is_dead(self, pair: Pair) -> bool:
        """True where the bandwidth of `pair` is 0."""
        return bool(self.state.bandwidth_bps[pair] <= 0)

    def dead(self) -> list[Pair]:
        """Dead links, in order."""
        return [(int(i), int(j)) for i, j in np.argwhere(self.state.bandwidth_bps <= 0)]

    def latency_ns(self, pair: Pair) -> int:
        """One-way latency now."""
        return to_ns(float(self.state.latency_s[pair]))

    def watch(self, pairs: Iterable[Pair]) -> None:
        """Report changes of `pairs` from now on; each call is undone by one of `unwatch`."""
        self._count(pairs, 1)

    def unwatch(self, pairs: Iterable[Pair]) -> None:
        """Undo one call of `watch`."""
        self._count(pairs, -1)

    def _count(self, pairs: Iterable[Pair], by: int) -> None:
        for pair in pairs:
            self._watched[pair] += by
        self._schedule_wakes()

    def ahead(self, pairs: Sequence[Pair], limit: int = 64) -> tuple[list[int], Values, Values]:
        """Coming changes of `pairs`, for evaluating many at once; never passed on to a policy.

        Returns: the next wake-ups (n,) in ns, bandwidth and latency of `pairs` at each (len(pairs), n).
        """
        piece, wakes = self._piece, self._wakes[: -limit - 1 : -1]
        shape = (len(pairs), len(wakes))
        bandwidth, latency = np.empty(shape), np.empty(shape)
        if piece is None or not wakes:
            return [], bandwidth, latency
        state, ends = self.state, np.array([last for _, _, last in wakes])
        part = slice(self._done, int(ends[-1]))
        code = piece.rows[part] * len(self._watched) + piece.columns[part]
        for n, (i, j) in enumerate(pairs):
            own = np.flatnonzero(code == i * len(self._watched) + j) + self._done
            place = own.searchsorted(ends)  # how many of its changes have happened by then
            for found, now, values in (
                (bandwidth, state.bandwidth_bps[i, j], piece.bandwidth_bps),
                (latency, state.latency_s[i, j], piece.latency_s),
            ):
                found[n] = np.concatenate([[now], values[own]])[place]
        return [at_ns for at_ns, _, _ in wakes], bandwidth, latency

    # -- reading the trace

    def _open_piece(self) -> None:
        """Read the next piece; the state holds everything before it."""
        piece = next(self._pieces, None)
        if piece is None:
            self._piece, self._next_ns = None, NEVER
            return
        _, rows, columns, bandwidth, _ = piece
        alive = self._state.bandwidth_bps > 0
        flips = np.empty(len(rows), np.bool_)
        code = rows * len(alive) + columns
        order = np.argsort(code, kind="stable")  # of one link, in the order of time
        now, first = (bandwidth > 0)[order], np.diff(code[order], prepend=-1) != 0
        before = np.where(first, alive[rows[order], columns[order]], np.roll(now, 1))
        flips[order] = now != before
        self._piece, self._done, self._next_ns = _Piece(*piece, flips), 0, int(piece[0][0])

    def _apply(self) -> None:
        """Bring the state up to the present instant."""
        if self._piece is not None:
            last = int(self._piece.times_ns.searchsorted(self.env.now, side="right"))
            self._apply_until(self._piece, last)

    def _apply_until(self, piece: _Piece, last: int) -> None:
        first = self._done
        if first >= last:
            return
        which = piece.rows[first:last], piece.columns[first:last]
        self._state.bandwidth_bps[which] = piece.bandwidth_bps[first:last]  # of one link the last one counts
        self._state.latency_s[which] = piece.latency_s[first:last]
        self._done = last
        # At the end of the piece its last wake-up opens the next one: it still reports what changed here.
        self._next_ns = NEVER if last == len(piece.times_ns) else int(piece.times_ns[last])

    # -- waking up

    def _schedule_wakes(self) -> None:
        """Schedule a wake-up at each change to report and at the end of the piece; earlier ones are void."""
        self._wake_number += 1
        piece = self._piece
        if piece is None:
            return
        begin = int(piece.times_ns.searchsorted(max(self.env.now, self._reported_ns + 1)))
        times, flips = piece.times_ns[begin:], piece.flips[begin:]
        matters = (self._watched[piece.rows[begin:], piece.columns[begin:]] > 0) | flips
        matters[-1:] = True  # the end of the piece
        wakes = np.unique(times[matters])
        first, last = times.searchsorted(wakes), times.searchsorted(wakes, side="right")
        rows = (wakes, first + begin, last + begin)
        self._wakes = list(zip(*(row[::-1].tolist() for row in rows), strict=True))
        self._schedule_next()

    def _schedule_next(self) -> None:
        if self._wakes:
            at_ns, first, last = self._wakes[-1]
            number = self._wake_number
            alarm = At(self.env, at_ns - self.env.now, TRUTH)
            alarm.callbacks.append(lambda _: self._wake(number, first, last))

    def _wake(self, number: int, first: int, last: int) -> None:
        """Report the changes `first` to `last` of the piece, those of this instant."""
        piece = self._piece
        if number != self._wake_number or piece is None:
            return
        self._wakes.pop()
        changed = list(zip(piece.rows[first:last].tolist(), piece.columns[first:last].tolist(), strict=True))
        flipped = [pair for pair, flips in zip(changed, piece.flips[first:last], strict=True) if flips]
        watched = [pair for pair in changed if self._watched[pair]]
        self._reported_ns = self.env.now
        self._apply_until(piece, last)
        if last == len(piece.times_ns):
            self._open_piece()
            self._schedule_wakes()
        else:
            self._schedule_next()
        for watcher in self.watchers if watched else ():
            watcher(watched)
        for pair in flipped:
            (self.on_dead if self.is_dead(pair) else self.on_alive)(pair)


def _ignore(pair: Pair) -> None:
    """Default of `on_dead` and `on_alive`."""
