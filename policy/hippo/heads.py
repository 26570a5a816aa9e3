"""The agents' heads in numpy, for sampling: a plan is a chain of small steps, and numpy starts a step sooner.

Weights are views into the torch parameters, so they are always the current ones. The same functions in torch
(`policy.hippo.upper`, `policy.hippo.lower`) judge given answers and learn; a test holds the two equal.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from policy.hippo.lower import LowerAgent
from policy.hippo.observation import Observation
from policy.hippo.upper import MASKED, SPLITS, Encoded, UpperAgent

Float = NDArray[np.float32]
Int = NDArray[np.int64]
Bool = NDArray[np.bool_]


class _Linear:
    """x W^T + b on the memory of a torch layer."""

    def __init__(self, layer: nn.Linear):
        self.weight = layer.weight.detach().numpy().T
        self.bias = layer.bias.detach().numpy()

    def __call__(self, x: Float) -> Float:
        result: Float = x @ self.weight + self.bias
        return result


@dataclass(frozen=True, eq=False)
class Scene:
    """What stays the same while B plans are built, as arrays; see `Encoded` and `Observation`."""

    graph: Float  # (B, 2 h) of the step heads, the knob included
    edges: Float
    domain: Float
    last: Float
    layer: Float
    begin: Int
    end: Int
    pace: Float


class Heads:
    """Both agents' step heads; R rows are R partial plans."""

    def __init__(self, upper: UpperAgent, lower: LowerAgent):
        self._graph, self._knob = _Linear(upper.step_graph), _Linear(upper.step_knob)
        self._scalar, self._room = _Linear(upper.step_scalar), _Linear(upper.domain_room)
        self._domain_out, self._layer_out = _Linear(upper.domain_out), _Linear(upper.layer_out)
        self._count = _Linear(upper.layer_count)
        self._start = upper.start.detach().numpy()
        self._score = [_Linear(part) for part in lower.score if isinstance(part, nn.Linear)]
        self._lower_out = _Linear(lower.out)

    def scene(self, state: Encoded, observation: Observation, knob: Int) -> Scene:
        """The situations with their chosen knobs."""
        rows = np.arange(len(knob))
        features = observation.knobs.numpy()[rows, knob]
        graph = self._graph(state.graph.numpy()) + self._knob(features)
        arrays = (state.edges.numpy(), state.domain.numpy(), state.last.numpy(), state.layer.numpy())
        begin, end, pace = (x.numpy() for x in (observation.begin, observation.end, observation.pace))
        return Scene(graph, arrays[0], arrays[1], arrays[2], arrays[3], begin, end, pace)

    def context(self, scene: Scene, used: Bool, left: Int, last: Int, n_layers: int) -> Float:
        """What both step heads share, (R, 2 h)."""
        k, count = used.shape[1], used.sum(1)
        scalars = np.stack([left / n_layers, count / k, count / 4, 1 / (1 + k - count), last < 0], axis=1)
        result: Float = scene.graph + self._scalar(scalars.astype(np.float32))
        return result

    def links(self, scene: Scene, last: Int) -> Float:
        """What the step heads make of the links to the domain placed last, (R, K, h); 0 at the first step."""
        links = scene.edges[np.arange(len(last)), :, last]
        return np.where((last < 0)[:, None, None], np.float32(0), links)

    def domain_logits(
        self, scene: Scene, context: Float, links: Float, open_: Bool, left: Int, last: Int
    ) -> Float:
        """Logits (R, K) of the next domain."""
        h, rows, first = context.shape[1] // 2, np.arange(len(last)), last < 0
        room = open_.sum(2, dtype=np.float32) / open_.shape[2]
        finish = open_[rows, :, left - 1].astype(np.float32)
        after = np.where(first[:, None], self._start, scene.last[rows, last])
        mixed = scene.domain + self._room(np.stack([room, finish], axis=-1)) + links
        mixed += (context[:, :h] + after)[:, None]
        logits = self._domain_out(np.maximum(mixed, 0.0))[..., 0]
        return np.where(room == 0, np.float32(MASKED), logits)

    def layer_logits(
        self, scene: Scene, context: Float, links: Float, legal: Bool, domain: Int, left: Int
    ) -> Float:
        """Logits (R, N) of the layers that the domain takes; `legal` (R, N)."""
        h, rows = context.shape[1] // 2, np.arange(len(domain))
        own = context[:, h:] + scene.layer[rows, domain] + links[rows, domain]
        mixed = self._count(layer_features(scene, legal, domain, left)) + own[:, None]
        logits = self._layer_out(np.maximum(mixed, 0.0))[..., 0]
        return np.where(legal, logits, np.float32(MASKED))

    def lower_logits(self, features: Float, legal: Bool) -> Float:
        """Logits (R, Q) of the inner configurations."""
        for layer in self._score:
            features = np.maximum(layer(features), 0.0)
        return np.where(legal, self._lower_out(features)[..., 0], np.float32(MASKED))


def layer_features(scene: Scene, legal: Bool, domain: Int, left: Int) -> Float:
    """As `policy.hippo.upper.layer_features`, (R, N, LAYER)."""
    rows, n = np.arange(len(left)), legal.shape[1]
    out = _fixed_features(n)[left]
    layers, total = np.arange(1, n + 1), left[:, None]
    begin, end = scene.begin[rows, domain][:, None], scene.end[rows, domain][:, None]
    out[:, :, 1] = layers / n * scene.pace[rows, domain][:, None]
    out[:, :, 5] = layers == (legal * layers).max(1, keepdims=True)
    rest = total - layers == begin
    out[:, :, 6], out[:, :, 7], out[:, :, 8] = rest, rest & (total == end), layers == end - begin
    return out


@lru_cache(maxsize=8)
def _fixed_features(n: int) -> Float:
    """The features that depend on layers left and taken alone, (N + 1, N, LAYER); the others are 0."""
    left = torch.arange(n + 1).float()
    layers = torch.arange(1, n + 1).float().expand(n + 1, -1)
    total = left.unsqueeze(1)
    part = (total / layers).clamp(min=1e-3).log()
    splits = torch.arange(1, SPLITS + 1).float().log()
    bumps = torch.exp(-(((part.unsqueeze(-1) - splits) / 0.06) ** 2))
    zero = torch.zeros_like(part)
    fixed = [layers / n, zero, (total - layers) / n, part.clamp(-3, 5), (layers == total).float()]
    result: Float = torch.cat([torch.stack([*fixed, *[zero] * 4], dim=-1), bumps], dim=-1).numpy()
    return result
