"""A small actor-critic in numpy: one hidden layer shared by policy and value, with explicit gradients."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]
VALUE_COEFFICIENT = 0.5
ENTROPY_COEFFICIENT = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class TransitionBatch:
    """Transitions: `states` (B, S), legal actions `masks` (B, A), `actions` (B,), `returns` (B,)."""

    states: Float
    masks: NDArray[np.bool_]
    actions: Int
    returns: Float


class ActorCritic:
    """tanh(x W + b) -> logits of A actions and a value; trained with Adam."""

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

    def predict(self, states: Float, masks: NDArray[np.bool_]) -> tuple[Float, Float]:
        """Returns probabilities (B, A), 0 where masked, and values (B,)."""
        return self._forward(states, masks)[1:]

    def loss(self, batch: TransitionBatch, *, imitate: bool) -> float:
        """Returns the loss that `update` minimises."""
        _, probabilities, values = self._forward(batch.states, batch.masks)
        rows = np.arange(len(batch.actions))
        weight = np.ones(len(rows)) if imitate else self._advantages(batch, values)
        chosen = np.log(probabilities[rows, batch.actions])
        spread = _entropy(probabilities)
        squared = (batch.returns - values) ** 2
        return float(np.mean(-weight * chosen - ENTROPY_COEFFICIENT * spread + VALUE_COEFFICIENT * squared))

    def gradients(self, batch: TransitionBatch, *, imitate: bool) -> dict[str, Float]:
        """Returns the gradient of `loss` with constant advantages."""
        p = self.parameters
        hidden, probabilities, values = self._forward(batch.states, batch.masks)
        count, rows = len(batch.actions), np.arange(len(batch.actions))
        weight = np.ones(count) if imitate else self._advantages(batch, values)
        d_logits = weight[:, None] * probabilities
        d_logits[rows, batch.actions] -= weight
        logs = np.log(np.where(probabilities > 0, probabilities, 1.0))
        d_logits += ENTROPY_COEFFICIENT * probabilities * (logs + _entropy(probabilities)[:, None])
        d_value = -2 * VALUE_COEFFICIENT * (batch.returns - values)
        d_logits, d_value = d_logits / count, d_value / count
        d_hidden = (d_logits @ p["actor"].T + d_value[:, None] * p["critic"]) * (1 - hidden**2)
        return {
            "w": batch.states.T @ d_hidden,
            "b": d_hidden.sum(axis=0),
            "actor": hidden.T @ d_logits,
            "actor_b": d_logits.sum(axis=0),
            "critic": hidden.T @ d_value,
            "critic_b": np.array([d_value.sum()]),
        }

    def update(self, batch: TransitionBatch, *, imitate: bool, rate: float) -> None:
        """Makes one step of Adam: cross-entropy with the actions (imitation) or policy gradient with their
        advantages, an entropy bonus, and the squared error of the values."""
        self._steps += 1
        for name, gradient in self.gradients(batch, imitate=imitate).items():
            first, second = self._first[name], self._second[name]
            first += 0.1 * (gradient - first)
            second += 0.001 * (gradient**2 - second)
            step = (first / (1 - 0.9**self._steps)) / (np.sqrt(second / (1 - 0.999**self._steps)) + 1e-8)
            self.parameters[name] -= rate * step

    def _advantages(self, batch: TransitionBatch, values: Float) -> Float:
        return batch.returns - values

    def _forward(self, states: Float, masks: NDArray[np.bool_]) -> tuple[Float, Float, Float]:
        p = self.parameters
        hidden = np.tanh(states @ p["w"] + p["b"])
        logits = np.where(masks, hidden @ p["actor"] + p["actor_b"], -np.inf)
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        return hidden, powers / powers.sum(axis=1, keepdims=True), hidden @ p["critic"] + p["critic_b"][0]


def _entropy(probabilities: Float) -> Float:
    logs = np.log(np.where(probabilities > 0, probabilities, 1.0))
    return np.asarray(-(probabilities * logs).sum(axis=1))
