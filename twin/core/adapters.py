"""Low-rank adapters (LoRA: Hu et al. 2021, arXiv:2106.09685): beside a frozen matrix two thin ones are
trained, d_in x r and r x d_out."""

from dataclasses import dataclass

ATTENTION = ("q", "k", "v", "o")
MLP = ("gate", "up", "down")
TARGETS = (*ATTENTION, *MLP)
"""Matrices of a block: of queries, keys, values and the attention's output; of the MLP."""


@dataclass(frozen=True, slots=True)
class Adapters:
    """Adapters of `rank` beside the matrices `targets` of every block; nothing else of the model is
    trained."""

    rank: int
    targets: tuple[str, ...] = ("q", "v")

    def fault(self, gated: bool, mixture: bool, narrowest: int) -> str | None:
        """Reason why a model cannot have these adapters; None if it can. `narrowest`: width of its narrowest
        matrix."""
        unknown = [name for name in self.targets if name not in TARGETS]
        if unknown:
            return f"lora: no matrix is called {unknown[0]!r}; there are {', '.join(TARGETS)}"
        if not self.targets or len(set(self.targets)) != len(self.targets):
            return "lora: name every target once, at least one"
        if not 1 <= self.rank <= narrowest:
            return f"lora: rank {self.rank} is not between 1 and the narrowest matrix, {narrowest}"
        if "gate" in self.targets and not gated:
            return "lora: this model's MLP has no gate"
        if mixture and set(self.targets) & set(MLP):
            return f"lora: adapters of experts have no model; take targets from {', '.join(ATTENTION)}"
        return None
