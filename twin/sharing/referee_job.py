"""One job of the referee of changing jobs, with the pieces of its run behind it."""

from dataclasses import dataclass, field

from twin.sharing.changes import PPM
from twin.sharing.view import NOWHERE


@dataclass
class RefereeJob:
    """One job: what is left of its work, what it holds since when, and what it has had."""

    index: int
    left: int
    nodes: frozenset[tuple[int, int]] = frozenset()
    """Nodes that it holds beside others or alone, with how many of their GPUs."""
    node: int = NOWHERE
    gpus: int = 0
    rate: int = 0
    leader: int = NOWHERE
    mode: int = 0
    charge: int = 0
    at: int = 0
    ready: int = 0
    since: int = 0
    first: int = NOWHERE
    runs: list[tuple[int, int, int]] = field(default_factory=list)
    """Begin, end and GPUs of the pieces of its run that are over."""
    preempted: int = 0
    changed: int = 0
    version: int = 0
    over: bool = False
    stands: bool = False
    """Its node has failed, and nobody has noticed."""
    saved: int = NOWHERE
    """What was left as its run was changed the last time, NOWHERE before."""
    pieces: list[tuple[int, int, int]] = field(default_factory=list)
    """Begin, rate and work left of the pieces of its run since then."""

    def work_by(self, time: int) -> int:
        """Returns what is done since the job was changed."""
        return max(0, time - max(self.at, self.ready)) * self.rate // PPM

    def kept(self, now: int, every: int) -> int:
        """Returns what is left of the job at its last checkpoint."""
        begun = self.pieces[0][0]
        if not every or now < begun:
            return self.saved
        last = begun + (now - begun) // every * every
        begin, rate, left = next(one for one in reversed(self.pieces) if one[0] <= last)
        return left - (last - begin) * rate // PPM

    def end(self) -> int:
        """Returns when the job ends if it is left as it is."""
        return max(self.at, self.ready) - (-self.left * PPM // self.rate)
