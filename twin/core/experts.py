"""Mixtures of experts: the MLPs of which a router picks some for every token."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Experts:
    """Experts of a block: `count` MLPs of width `ffn`, of which a router picks `top_k` for every token.

    `shared`: width of the experts that all tokens pass, together; 0: there are none. `every`, `first`: blocks
    `first`, `first + every`, ... have experts, the others one dense MLP (`--moe-layer-freq` of Megatron,
    `first_k_dense_replace` of DeepSeek).
    """

    count: int
    top_k: int
    ffn: int
    shared: int = 0
    every: int = 1
    first: int = 0

    @property
    def fault(self) -> str | None:
        """Reason why there can be no such experts; None if there can."""
        if self.count < 2:
            return f"{self.count} experts are no mixture; give two or more"
        if not 1 <= self.top_k <= self.count:
            return f"a token cannot pass {self.top_k} of {self.count} experts"
        if min(self.ffn, self.every) < 1 or min(self.shared, self.first) < 0:
            return "widths and distances of experts are at least 1, shared width and first block at least 0"
        return None

    def lie_in(self, block: int) -> bool:
        """True where block number `block`, from 0, has experts."""
        return block >= self.first and (block - self.first) % self.every == 0


def degree_fault(experts: Experts | None, ep: int) -> str | None:
    """Reason why `ep` ranks cannot share the experts of a block; None if they can."""
    if ep == 1:
        return None
    if experts is None:
        return f"ep {ep} needs a model with experts"
    if ep < 1 or experts.count % ep:
        return f"ep {ep} does not divide {experts.count} experts"
    return None
