"""A small actor-critic in numpy: one hidden layer shared by action scores and value, trained by gradients
written out.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]
VALUE_COEFFICIENT = 0.5
ENTROPY_COEFFICIENT = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Steps: `states` (B, S), open actions `masks` (B, A), `actions` (B,), `returns` (B,)."""

    states: Float
    masks: NDArray[np.bool_]
    actions: Int
    returns: Float


class ActorCritic:
    """tanh(x W + b) -> scores of A actions and a value; Adam."""

    def __init__(self, inputs: int, actions: int, hidden: int, rng: np.random.Generator) -> None:
        scale = 1.0 / np.sqrt(inputs)
        self.parameters = {
            "w": rng.normal(0.0, scale, (inputs, hidden)),
            "b": np.zeros(hidden),
            "actor": np.zeros((hidden, actions)),
            "actor_b": np.zeros(actions),
            "critic": np.zeros(hidden),
            "critic_b": np.zeros(1),
        }
        self._first = {name: np.zeros_like(p) for name, p in self.parameters.items()}
        self._second = {name: np.zeros_like(p) for name, p in self.parameters.items()}
        self._steps = 0

    def scores(self, states: Float, masks: NDArray[np.bool_]) -> tuple[Float, Float]:
        """Probabilities (B, A), 0 where masked, and values (B,)."""
        return self._forward(states, masks)[1:]

    def loss(self, batch: Batch, *, imitate: bool) -> float:
        """What `update` descends on; see there."""
        _, probabilities, values = self._forward(batch.states, batch.masks)
        rows = np.arange(len(batch.actions))
        weight = np.ones(len(rows)) if imitate else self._advantages(batch, values)
        chosen = np.log(probabilities[rows, batch.actions])
        spread = _entropy(probabilities)
        squared = (batch.returns - values) ** 2
        return float(np.mean(-weight * chosen - ENTROPY_COEFFICIENT * spread + VALUE_COEFFICIENT * squared))

    def gradients(self, batch: Batch, *, imitate: bool) -> dict[str, Float]:
        """Gradient of `loss`, the advantages held constant."""
        p = self.parameters
        hidden, probabilities, values = self._forward(batch.states, batch.masks)
        count, rows = len(batch.actions), np.arange(len(batch.actions))
        weight = np.ones(count) if imitate else self._advantages(batch, values)
        onto = weight[:, None] * probabilities
        onto[rows, batch.actions] -= weight
        logs = np.log(np.where(probabilities > 0, probabilities, 1.0))
        onto += ENTROPY_COEFFICIENT * probabilities * (logs + _entropy(probabilities)[:, None])
        onto_value = -2 * VALUE_COEFFICIENT * (batch.returns - values)
        onto, onto_value = onto / count, onto_value / count
        inner = (onto @ p["actor"].T + onto_value[:, None] * p["critic"]) * (1 - hidden**2)
        return {
            "w": batch.states.T @ inner,
            "b": inner.sum(axis=0),
            "actor": hidden.T @ onto,
            "actor_b": onto.sum(axis=0),
            "critic": hidden.T @ onto_value,
            "critic_b": np.array([onto_value.sum()]),
        }

    def update(self, batch: Batch, *, imitate: bool, rate: float) -> None:
        """One step of Adam: towards the actions (imitation) or along their advantages (policy gradient), with
        an entropy bonus; the value towards the returns."""
        self._steps += 1
        for name, gradient in self.gradients(batch, imitate=imitate).items():
            first, second = self._first[name], self._second[name]
            first += 0.1 * (gradient - first)
            second += 0.001 * (gradient**2 - second)
            step = (first / (1 - 0.9**self._steps)) / (np.sqrt(second / (1 - 0.999**self._steps)) + 1e-8)
            self.parameters[name] -= rate * step

    def _advantages(self, batch: Batch, values: Float) -> Float:
        return batch.returns - values

    def _forward(self, states: Float, masks: NDArray[np.bool_]) -> tuple[Float, Float, Float]:
        p = self.parameters
        hidden = np.tanh(states @ p["w"] + p["b"])
        raw = np.where(masks, hidden @ p["actor"] + p["actor_b"], -np.inf)
        powers = np.exp(raw - raw.max(axis=1, keepdims=True))
        return hidden, powers / powers.sum(axis=1, keepdims=True), hidden @ p["critic"] + p["critic_b"][0]


def _entropy(probabilities: Float) -> Float:
    logs = np.log(np.where(probabilities > 0, probabilities, 1.0))
    return np.asarray(-(probabilities * logs).sum(axis=1))
