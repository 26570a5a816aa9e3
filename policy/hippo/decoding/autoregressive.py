"""Autoregressive decoding of plans, share by share from the last to the first, in compiled code.

A share is three choices (domain, number of layers, inner configuration), each under the exact mask of the
partial plan and scored by a head of the agents. Compiled, a step takes microseconds; as many small tensor
operations it would take far longer. The same heads in torch (`policy.hippo.networks.upper_agent`,
`policy.hippo.networks.lower_agent`) serve learning; tested equal.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ingest.core.compiled import njit, njit_inner
from policy.hippo.networks.lower_agent import MASKED, LowerAgent
from policy.hippo.networks.upper_agent import SPLITS, UpperAgent
from policy.hippo.tables.masks import MaskTables, legal, open_steps
from policy.hippo.tables.observation import CHOICE

Float = NDArray[np.float32]
Int = NDArray[np.int64]
Bool = NDArray[np.bool_]


class HeadWeights(NamedTuple):
    """Weights of the heads of a step, each (inputs, outputs)."""

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


class DecoderInput(NamedTuple):
    """B encoded situations; see `policy.hippo.networks.upper_agent.Encoded` and `Observation`."""

    graph: Float  # (B, 2 h) of the step heads, the chosen knob included
    edges: Float  # (B, K, K, h)
    domain: Float  # (B, K, h)
    last: Float  # (B, K, h)
    layer: Float  # (B, K, h)
    begin: Int  # (B, K)
    end: Int  # (B, K)
    pace: Float  # (B, K)
    current: Int  # (B, K)


class ChoiceTables(NamedTuple):
    """Constant features of what a step chooses from."""

    pp: Int  # (C, Z, Q) stages of an inner configuration
    inner: Float  # (C, Z, Q, 5) of an inner configuration, see `PlanningTables.choice_table`
    layer: Float  # (N + 1, N, LAYER) of taking l of the layers left, see `_layer_table`


class DecodedPlans(NamedTuple):
    """B plans from the last share to the first, S steps at most, and what each step was chosen from."""

    domain: Int  # (B, S), -1 pads
    layers: Int  # (B, S)
    choice: Int  # (B, S)
    open: Bool  # (B, S, K, N)
    legal: Bool  # (B, S, Q)
    behind: Int  # (B, S)
    log_prob: NDArray[np.float64]  # (B,) of domains and layers
    lower_log_prob: NDArray[np.float64]  # (B,) of the inner configurations


def head_weights(upper: UpperAgent, lower: LowerAgent) -> HeadWeights:
    """Returns the present weights of the step heads."""
    inner = [part for part in lower.score if isinstance(part, nn.Linear)]
    linear = [upper.step_scalar, upper.domain_room, upper.domain_out, upper.layer_count, upper.layer_out]
    parts = [
        part for layer in (*linear, *inner, lower.out) for part in (_inputs_first(layer.weight), layer.bias)
    ]
    arrays = [np.ascontiguousarray(part.detach().numpy()) for part in (*parts[:4], upper.start, *parts[4:])]
    return HeadWeights(*arrays)


def _inputs_first(weight: Tensor) -> Tensor:
    """A layer's weight as (inputs, outputs), or (inputs,) with one output."""
    return weight.T if weight.shape[0] > 1 else weight[0]


def decode(
    weights: HeadWeights,
    given: DecoderInput,
    masks: MaskTables,
    pp: Int,
    choice_table: Float,
    knob: Int,
    uniform: NDArray[np.float64],
) -> DecodedPlans:
    """Returns one plan for each situation of `given`.

    `pp` (C, Z, Q) are the stages of a configuration, `choice_table` (C, Z, Q, 5) its constant features,
    `knob` is (B,), `uniform` (B, 3 K) holds three numbers in [0, 1) a step, negative for the most likely.
    """
    (batch, k), n = given.begin.shape, masks.limit.shape[3] - 1
    plans = DecodedPlans(
        np.full((batch, k), -1, dtype=np.int64),
        np.zeros((batch, k), dtype=np.int64),
        np.zeros((batch, k), dtype=np.int64),
        np.zeros((batch, k, k, n), dtype=np.bool_),
        np.zeros((batch, k, pp.shape[2]), dtype=np.bool_),
        np.zeros((batch, k), dtype=np.int64),
        np.zeros(batch),
        np.zeros(batch),
    )
    tables = ChoiceTables(pp, choice_table, _layer_table(n))
    steps = _decode(weights, given, masks, tables, knob, np.ascontiguousarray(uniform), plans)
    return DecodedPlans._make([*(part[:, :steps] for part in plans[:6]), *plans[6:]])


@lru_cache(maxsize=8)
def _layer_table(n: int) -> Float:
    """Features (N + 1, N, LAYER) of `policy.hippo.networks.upper_agent.layer_features` that depend on layers
    left and taken alone; the others are 0."""
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
def _decode(weights, given, masks, tables, knob, uniform, plans):  # type: ignore[no-untyped-def]
    """Fills `plans` as `decode` returns them, with K steps; returns the most steps of a plan."""
    batch, k = given.begin.shape
    n_layers, h = masks.limit.shape[3] - 1, given.domain.shape[2]
    context, row = np.empty(2 * h, np.float32), np.empty(h, np.float32)
    domain_logits, layer_logits = np.empty(k, np.float32), np.empty(n_layers, np.float32)
    inner_logits, most = np.empty(tables.pp.shape[2], np.float32), 0
    for b in range(batch):
        # not 0 and -1: a literal is a type of its own, for which all that is called is compiled once more
        c, left, behind, last, step = knob[b], n_layers, np.int64(0), np.int64(-1), np.int64(0)
        used, code = np.zeros(k, np.bool_), np.int64(0)
        for z in masks.class_of:
            code += masks.strides[z]
        while left > 0:
            open_, legal_ = plans.open[b, step], plans.legal[b, step]
            open_steps(masks, c, used, code, left, behind, open_)
            _context(weights, given.graph[b], k, left, step, last < 0, n_layers, context)
            _domain_logits(weights, given, b, context, open_, left, last, row, domain_logits)
            domain, log_prob = _sample(domain_logits, uniform[b, 3 * step])
            plans.log_prob[b] += log_prob
            _layer_logits(
                weights, given, b, context, open_[domain], domain, left, last, tables.layer, row, layer_logits
            )
            less_one, log_prob = _sample(layer_logits, uniform[b, 3 * step + 1])
            plans.log_prob[b] += log_prob
            layers, z = less_one + 1, masks.class_of[domain]
            code -= masks.strides[z]
            s = min(behind, masks.reach.shape[3] - 1)
            for q in range(len(inner_logits)):
                legal_[q] = legal(masks, c, z, q, code, left, s, layers)
            current, pp = given.current[b, domain], tables.pp[c, z]
            _inner_logits(
                weights, tables.inner[c, z], pp, layers, behind, n_layers, current, legal_, inner_logits
            )
            choice, log_prob = _sample(inner_logits, uniform[b, 3 * step + 2])
            plans.lower_log_prob[b] += log_prob
            plans.domain[b, step], plans.layers[b, step], plans.choice[b, step] = domain, layers, choice
            plans.behind[b, step] = behind
            used[domain] = True
            left -= layers
            behind += pp[choice]
            last = domain
            step += 1
        plans.behind[b, step:] = behind
        most = max(most, int(step))
    return most


@njit(cache=True, nogil=True, error_model="numpy")
def sample_rows(logits, uniform):  # type: ignore[no-untyped-def]
    """Returns an index of each row of `logits` (R, A) by `uniform` (R,), and its log-probability."""
    index, log_prob = np.empty(len(logits), np.int64), np.empty(len(logits))
    for row in range(len(logits)):
        index[row], log_prob[row] = _sample(logits[row], uniform[row])
    return index, log_prob


@njit_inner(cache=True, nogil=True, error_model="numpy")
def _sample(logits, uniform):  # type: ignore[no-untyped-def]
    """An index by inverse transform, the most likely where `uniform` is negative, and its log-probability."""
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


@njit_inner(cache=True, nogil=True, error_model="numpy")
def _add_scaled(row, weight, by):  # type: ignore[no-untyped-def]
    """row += by * weight; here and below in 32 bits, as torch."""
    for j in range(len(row)):
        row[j] += by * weight[j]


@njit_inner(cache=True, nogil=True, error_model="numpy")
def _relu_dot(row, weight, bias):  # type: ignore[no-untyped-def]
    """relu(row) . weight + bias, the last layer of a head."""
    total = bias[0]
    for j in range(len(row)):
        total += max(row[j], np.float32(0)) * weight[j]
    return total


@njit_inner(cache=True, nogil=True, error_model="numpy")
def _context(weights, graph, k, left, placed, first, n_layers, out):  # type: ignore[no-untyped-def]
    """Input that both step heads share; see `policy.hippo.networks.upper_agent.scalars`."""
    out[:] = graph + weights.scalar_bias
    _add_scaled(out, weights.scalar[0], np.float32(left / n_layers))
    _add_scaled(out, weights.scalar[1], np.float32(placed / k))
    _add_scaled(out, weights.scalar[2], np.float32(placed / 4))
    _add_scaled(out, weights.scalar[3], np.float32(1 / (1 + k - placed)))
    _add_scaled(out, weights.scalar[4], np.float32(first))


@njit_inner(cache=True, nogil=True, error_model="numpy")
def _domain_logits(weights, given, b, context, open_, left, last, row, out):  # type: ignore[no-untyped-def]
    """As `UpperAgent.domain_logits`, (K,); `open_` (K, N)."""
    n_layers, h = open_.shape[1], len(row)
    after = context[:h] + (weights.start if last < 0 else given.last[b, last])
    for k in range(len(out)):
        room = open_[k].sum()
        if room == 0:
            out[k] = MASKED
            continue
        row[:] = after + given.domain[b, k] + weights.room_bias
        _add_scaled(row, weights.room[0], np.float32(room / n_layers))
        if open_[k, left - 1]:
            row += weights.room[1]
        if last >= 0:
            row += given.edges[b, k, last]
        out[k] = _relu_dot(row, weights.domain_out, weights.domain_out_bias)


@njit_inner(cache=True, nogil=True, error_model="numpy")
def _layer_logits(weights, given, b, context, open_, domain, left, last, fixed, row, out):  # type: ignore[no-untyped-def]
    """As `UpperAgent.layer_logits` of one share, (N,); `open_` (N,) marks the legal numbers of layers."""
    n_layers, h = len(out), len(row)
    own = context[h:] + given.layer[b, domain] + weights.layer_bias
    if last >= 0:
        own += given.edges[b, domain, last]
    begin, end, pace, top = given.begin[b, domain], given.end[b, domain], given.pace[b, domain], 0
    for index in range(n_layers):
        if open_[index]:
            top = index + 1
    features = np.empty(fixed.shape[2], np.float32)
    for index in range(n_layers):
        if not open_[index]:
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
                _add_scaled(row, weights.layer[i], features[i])
        out[index] = _relu_dot(row, weights.layer_out, weights.layer_out_bias)


@njit_inner(cache=True, nogil=True, error_model="numpy")
def _inner_logits(weights, table, pp, layers, behind, n_layers, current, legal_, out):  # type: ignore[no-untyped-def]
    """As `LowerAgent.logits` of one share, (Q,); see `policy.hippo.tables.features.choice_features`."""
    features, first = np.empty(CHOICE, np.float32), np.empty(weights.inner_1.shape[1], np.float32)
    second = np.empty(weights.inner_2.shape[1], np.float32)
    for q in range(len(out)):
        if not legal_[q]:
            out[q] = MASKED
            continue
        features[:5] = table[q]
        features[5], features[6] = layers / n_layers, layers / pp[q] / n_layers
        features[7], features[8] = behind / 8, q == current
        first[:] = weights.inner_1_bias
        for i in range(CHOICE):
            _add_scaled(first, weights.inner_1[i], features[i])
        second[:] = weights.inner_2_bias
        for i in range(len(first)):
            if first[i] > 0:
                _add_scaled(second, weights.inner_2[i], first[i])
        out[q] = _relu_dot(second, weights.inner_out, weights.inner_out_bias)
