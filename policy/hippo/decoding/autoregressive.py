"""Plans, built share after share from the last to the first, in one compiled walk for each.

A share is three small choices (domain, number of layers, inner configuration), each under the exact mask of
the plan so far and scored by a head of the agents. One step costs microseconds this way; as array operations
it is their number that costs. The same heads in torch (`policy.hippo.upper`, `policy.hippo.lower`) judge
given answers and learn; a test holds the two equal.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor, nn

from policy.hippo.networks.lower_agent import CHOICE, MASKED, LowerAgent
from policy.hippo.tables.masks import legal, open_steps
from policy.hippo.networks.upper_agent import SPLITS, UpperAgent

Float = NDArray[np.float32]
Int = NDArray[np.int64]
Bool = NDArray[np.bool_]


class Weights(NamedTuple):
    """The heads that a step asks; weights (inputs, outputs), as they are now."""

    scalar: Float
    scalar_bias: Float
    room: Float
    room_bias: Float
    start: Float
    domain_out: Float
    domain_out_bias: Float
    layer: Float
    layer_bias: Float
    layer_out: Float
    layer_out_bias: Float
    inner_1: Float
    inner_1_bias: Float
    inner_2: Float
    inner_2_bias: Float
    inner_out: Float
    inner_out_bias: Float


class Scene(NamedTuple):
    """B situations while plans are built for them; see `policy.hippo.upper.Encoded` and `Observation`."""

    graph: Float  # (B, 2 h) of the step heads, the chosen knob included
    edges: Float  # (B, K, K, h)
    domain: Float  # (B, K, h)
    last: Float  # (B, K, h)
    layer: Float  # (B, K, h)
    begin: Int  # (B, K)
    end: Int  # (B, K)
    pace: Float  # (B, K)
    current: Int  # (B, K)


class Placed(NamedTuple):
    """B plans from the last share to the first, S steps at most, and what each step was chosen from."""

    domain: Int  # (B, S), -1 pads
    layers: Int  # (B, S)
    choice: Int  # (B, S)
    open: Bool  # (B, S, K, N)
    legal: Bool  # (B, S, Q)
    behind: Int  # (B, S)
    chance: NDArray[np.float64]  # (B,) log-probability of domains and layers
    lower_chance: NDArray[np.float64]  # (B,) and of the inner configurations


def weights_of(upper: UpperAgent, lower: LowerAgent) -> Weights:
    """The weights of the step heads."""
    inner = [part for part in lower.score if isinstance(part, nn.Linear)]
    linear = [upper.step_scalar, upper.domain_room, upper.domain_out, upper.layer_count, upper.layer_out]
    parts = [part for layer in (*linear, *inner, lower.out) for part in (_turned(layer.weight), layer.bias)]
    arrays = [np.ascontiguousarray(part.detach().numpy()) for part in (*parts[:4], upper.start, *parts[4:])]
    return Weights(*arrays)


def _turned(weight: Tensor) -> Tensor:
    return weight.T if weight.shape[0] > 1 else weight[0]


def place(
    weights: Weights,
    scene: Scene,
    tables: tuple[Int, Bool, Bool, Int, Int, Int],
    pp: Int,
    choice_table: Float,
    knob: Int,
    uniform: NDArray[np.float64],
) -> Placed:
    """One plan for each situation of the scene.

    `tables` are those of `policy.hippo.masks.Masks`, `pp` (C, Z, Q) the stages of a configuration,
    `choice_table` (C, Z, Q, 5) its constant features, `knob` (B,), `uniform` (B, 3 K) numbers in [0, 1), or
    negative for the most likely, three a step.
    """
    (batch, k), n = scene.begin.shape, tables[0].shape[3] - 1
    codes = np.full((3, batch, k), -1, dtype=np.int64)
    codes[1:] = 0
    open_ = np.zeros((batch, k, k, n), dtype=np.bool_)
    legal_ = np.zeros((batch, k, pp.shape[2]), dtype=np.bool_)
    behind, chances = np.zeros((batch, k), dtype=np.int64), np.zeros((2, batch))
    fixed, given = _layer_table(n), np.ascontiguousarray(uniform)
    steps = _place(
        weights, scene, *tables, pp, choice_table, fixed, knob, given, codes, open_, legal_, behind, chances
    )
    domain, layers, choice = codes[:, :, :steps]
    return Placed(
        domain, layers, choice, open_[:, :steps], legal_[:, :steps], behind[:, :steps], chances[0], chances[1]
    )


@lru_cache(maxsize=8)
def _layer_table(n: int) -> Float:
    """Of `policy.hippo.upper.layer_features` those that layers left and taken alone say, (N + 1, N, LAYER);
    the others are 0."""
    left = torch.arange(n + 1).float()
    layers = torch.arange(1, n + 1).float().expand(n + 1, -1)
    total = left.unsqueeze(1)
    part = (total / layers).clamp(min=1e-3).log()
    splits = torch.arange(1, SPLITS + 1).float().log()
    bumps = torch.exp(-(((part.unsqueeze(-1) - splits) / 0.06) ** 2))
    zero = torch.zeros_like(part)
    fixed = [layers / n, zero, (total - layers) / n, part.clamp(-3, 5), (layers == total).float()]
    result: Float = torch.cat([torch.stack([*fixed, *[zero] * 4], dim=-1), bumps], dim=-1).numpy()
    return np.ascontiguousarray(result)


@njit(cache=True, nogil=True, error_model="numpy")
def _place(  # type: ignore[no-untyped-def]
    weights, scene, limit, whole, reach, stages, class_of, strides, pp, choice_table, fixed, knob, uniform,
    codes, open_, legal_, behind_, chances,
):  # fmt: skip
    """Fills `codes` (3, B, K), `open_`, `legal_`, `behind_`, `chances` (2, B); the most steps of a plan."""
    batch, k = scene.begin.shape
    n_layers, h = limit.shape[3] - 1, scene.domain.shape[2]
    context, row = np.empty(2 * h, np.float32), np.empty(h, np.float32)
    where, size = np.empty(k, np.float32), np.empty(n_layers, np.float32)
    how, most = np.empty(pp.shape[2], np.float32), 0
    for b in range(batch):
        c, left, behind, last, step = knob[b], n_layers, 0, -1, 0
        used, code = np.zeros(k, np.bool_), 0
        for z in class_of:
            code += strides[z]
        while left > 0:
            may, fits = open_[b, step], legal_[b, step]
            open_steps(limit, whole, reach, stages, class_of, strides, c, used, code, left, behind, may)
            _context(weights, scene.graph[b], k, left, step, last < 0, n_layers, context)
            _domain_logits(weights, scene, b, context, may, left, last, row, where)
            domain, chance = _drawn(where, uniform[b, 3 * step])
            chances[0, b] += chance
            _layer_logits(weights, scene, b, context, may[domain], domain, left, last, fixed, row, size)
            taken, chance = _drawn(size, uniform[b, 3 * step + 1])
            chances[0, b] += chance
            layers, z = taken + 1, class_of[domain]
            code -= strides[z]
            for q in range(len(how)):
                fits[q] = legal(
                    limit, whole, reach, stages[c, z, q], c, z, q, code, left,
                    min(behind, reach.shape[3] - 1), layers,
                )  # fmt: skip
            current = scene.current[b, domain]
            _inner_logits(weights, choice_table[c, z], pp[c, z], layers, behind, n_layers, current, fits, how)
            choice, chance = _drawn(how, uniform[b, 3 * step + 2])
            chances[1, b] += chance
            codes[0, b, step], codes[1, b, step], codes[2, b, step] = domain, layers, choice
            behind_[b, step] = behind
            used[domain] = True
            left -= layers
            behind += pp[c, z, choice]
            last = domain
            step += 1
        behind_[b, step:] = behind
        most = max(most, step)
    return most


@njit(cache=True, nogil=True, error_model="numpy")
def draw(logits, uniform):  # type: ignore[no-untyped-def]
    """An index for each row of `logits` (R, A) by `uniform` (R,), as in `place`; and its log-probability."""
    index, chance = np.empty(len(logits), np.int64), np.empty(len(logits))
    for row in range(len(logits)):
        index[row], chance[row] = _drawn(logits[row], uniform[row])
    return index, chance


@njit(cache=True, nogil=True, error_model="numpy")
def _drawn(logits, uniform):  # type: ignore[no-untyped-def]
    """An index by inverse distribution, the most likely where `uniform` is negative; its log-probability."""
    best = int(np.argmax(logits))
    total = 0.0
    for value in logits:
        total += np.exp(np.float64(value) - logits[best])
    index = best
    if uniform >= 0:
        running, wanted = 0.0, uniform * total
        for i in range(len(logits)):
            running += np.exp(np.float64(logits[i]) - logits[best])
            if running > wanted:
                index = i
                break
    return index, np.float64(logits[index]) - logits[best] - np.log(total)


@njit(cache=True, nogil=True, error_model="numpy")
def _added(row, weight, by):  # type: ignore[no-untyped-def]
    """row += by * weight; here and below in 32 bits, as torch."""
    for j in range(len(row)):
        row[j] += by * weight[j]


@njit(cache=True, nogil=True, error_model="numpy")
def _scored(row, weight, bias):  # type: ignore[no-untyped-def]
    """What a last layer makes of the positive part of a row."""
    total = bias[0]
    for j in range(len(row)):
        total += max(row[j], np.float32(0)) * weight[j]
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _context(weights, graph, k, left, placed, first, n_layers, out):  # type: ignore[no-untyped-def]
    """What both step heads share; see `policy.hippo.upper.scalars`."""
    out[:] = graph + weights.scalar_bias
    _added(out, weights.scalar[0], np.float32(left / n_layers))
    _added(out, weights.scalar[1], np.float32(placed / k))
    _added(out, weights.scalar[2], np.float32(placed / 4))
    _added(out, weights.scalar[3], np.float32(1 / (1 + k - placed)))
    _added(out, weights.scalar[4], np.float32(first))


@njit(cache=True, nogil=True, error_model="numpy")
def _domain_logits(weights, scene, b, context, may, left, last, row, out):  # type: ignore[no-untyped-def]
    """As `UpperAgent.domain_logits`, (K,); `may` (K, N)."""
    n_layers, h = may.shape[1], len(row)
    after = context[:h] + (weights.start if last < 0 else scene.last[b, last])
    for k in range(len(out)):
        room = may[k].sum()
        if room == 0:
            out[k] = MASKED
            continue
        row[:] = after + scene.domain[b, k] + weights.room_bias
        _added(row, weights.room[0], np.float32(room / n_layers))
        if may[k, left - 1]:
            row += weights.room[1]
        if last >= 0:
            row += scene.edges[b, k, last]
        out[k] = _scored(row, weights.domain_out, weights.domain_out_bias)


@njit(cache=True, nogil=True, error_model="numpy")
def _layer_logits(weights, scene, b, context, may, domain, left, last, fixed, row, out):  # type: ignore[no-untyped-def]
    """As `UpperAgent.layer_logits` of one share, (N,); `may` (N,) says which numbers of layers are legal."""
    n_layers, h = len(out), len(row)
    own = context[h:] + scene.layer[b, domain] + weights.layer_bias
    if last >= 0:
        own += scene.edges[b, domain, last]
    begin, end, pace, top = scene.begin[b, domain], scene.end[b, domain], scene.pace[b, domain], 0
    for index in range(n_layers):
        if may[index]:
            top = index + 1
    features = np.empty(fixed.shape[2], np.float32)
    for index in range(n_layers):
        if not may[index]:
            out[index] = MASKED
            continue
        layers = index + 1
        features[:] = fixed[left, index]
        features[1] = layers / n_layers * pace
        features[5] = layers == top
        features[6] = left - layers == begin
        features[7] = left - layers == begin and left == end
        features[8] = layers == end - begin
        row[:] = own
        for i in range(len(features)):
            if features[i] != 0:
                _added(row, weights.layer[i], features[i])
        out[index] = _scored(row, weights.layer_out, weights.layer_out_bias)


@njit(cache=True, nogil=True, error_model="numpy")
def _inner_logits(weights, table, pp, layers, behind, n_layers, current, fits, out):  # type: ignore[no-untyped-def]
    """As `LowerAgent.logits` of one share, (Q,); see `policy.hippo.lower.choice_features`."""
    features, first = np.empty(CHOICE, np.float32), np.empty(weights.inner_1.shape[1], np.float32)
    second = np.empty(weights.inner_2.shape[1], np.float32)
    for q in range(len(out)):
        if not fits[q]:
            out[q] = MASKED
            continue
        features[:5] = table[q]
        features[5], features[6] = layers / n_layers, layers / pp[q] / n_layers
        features[7], features[8] = behind / 8, q == current
        first[:] = weights.inner_1_bias
        for i in range(CHOICE):
            _added(first, weights.inner_1[i], features[i])
        second[:] = weights.inner_2_bias
        for i in range(len(first)):
            if first[i] > 0:
                _added(second, weights.inner_2[i], first[i])
        out[q] = _scored(second, weights.inner_out, weights.inner_out_bias)
