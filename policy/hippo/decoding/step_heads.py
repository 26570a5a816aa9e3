"""The heads of a step in compiled code, for decoding; tested equal to those in torch.

Nothing here makes an array or counts references to one: with as many arrays as a step reads, that would be
most of the time.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from policy.hippo.networks.layer_scores import NOTHING
from policy.hippo.networks.lower_agent import MASKED
from policy.hippo.tables.observation import CHOICE

TOGETHER = 4
"""Rows whose sums are computed side by side."""
LOWEST = -746.0
"""Its exponential and those of smaller numbers, such as `MASKED`, are 0."""

Float = NDArray[np.float32]
Int = NDArray[np.int64]


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


class StepScratch(NamedTuple):
    """Room for what a step computes, so that no array is made or counted while plans are built."""

    context: Float  # (2 h,) of both step heads
    row: Float  # (h,)
    rows: Float  # (TOGETHER, h)
    at: Int  # (TOGETHER,) numbers of layers of `rows`, less one
    features: Float  # (LAYER,) of a number of layers, (CHOICE,) of an inner configuration
    inner: Float  # (2, WIDTH)
    share: NDArray[np.float64]  # of the choices, before they are divided by their sum


@njit(inner=True, borrowing=True, cache=True, nogil=True, error_model="numpy")
def draw(logits, uniform, share):  # type: ignore[no-untyped-def]
    """An index by inverse transform, the most likely where `uniform` is negative, and its log-probability;
    `share` has room for a number each."""
    best, total = 0, 0.0
    for i in range(len(logits)):
        if logits[i] > logits[best]:
            best = i
    for i in range(len(logits)):
        below = np.float64(logits[i]) - logits[best]
        share[i] = np.exp(below) if below > LOWEST else 0.0
        total += share[i]
    index = best
    if uniform >= 0:
        running, wanted = 0.0, uniform * total
        for i in range(len(logits)):
            running += share[i]
            if running > wanted:
                index = i
                break
    return index, np.float64(logits[index]) - logits[best] - np.log(total)


@njit(inner=True, borrowing=True, cache=True, nogil=True, error_model="numpy")
def _add_scaled(row, weight, i, by):  # type: ignore[no-untyped-def]
    """row += by * weight[i]; here and below in 32 bits, as torch."""
    for j in range(len(row)):
        row[j] += by * weight[i, j]


@njit(inner=True, borrowing=True, cache=True, nogil=True, error_model="numpy")
def _relu_dot(row, weight, bias):  # type: ignore[no-untyped-def]
    """relu(row) . weight + bias, the last layer of a head."""
    total = bias[0]
    for j in range(len(row)):
        total += max(row[j], np.float32(0)) * weight[j]
    return total


@njit(inner=True, borrowing=True, cache=True, nogil=True, error_model="numpy")
def _relu_dots(rows, weight, bias, at, out):  # type: ignore[no-untyped-def]
    """Fills out[at[i]] with `_relu_dot` of rows[i]; the same sums, side by side none waits for another."""
    a = b = c = d = bias[0]
    for j in range(rows.shape[1]):
        by = weight[j]
        a += max(rows[0, j], np.float32(0)) * by
        b += max(rows[1, j], np.float32(0)) * by
        c += max(rows[2, j], np.float32(0)) * by
        d += max(rows[3, j], np.float32(0)) * by
    out[at[0]], out[at[1]], out[at[2]], out[at[3]] = a, b, c, d


@njit(inner=True, borrowing=True, cache=True, nogil=True, error_model="numpy")
def fill_context(weights, given, b, left, placed, first, n_layers, scratch):  # type: ignore[no-untyped-def]
    """Fills the input that both step heads share; see `policy.hippo.networks.upper_agent.scalars`."""
    out, k = scratch.context, given.begin.shape[1]
    for j in range(len(out)):
        out[j] = given.graph[b, j] + weights.scalar_bias[j]
    _add_scaled(out, weights.scalar, 0, np.float32(left / n_layers))
    _add_scaled(out, weights.scalar, 1, np.float32(placed / k))
    _add_scaled(out, weights.scalar, 2, np.float32(placed / 4))
    _add_scaled(out, weights.scalar, 3, np.float32(1 / (1 + k - placed)))
    _add_scaled(out, weights.scalar, 4, np.float32(first))


@njit(inner=True, borrowing=True, cache=True, nogil=True, error_model="numpy")
def fill_domain_logits(weights, given, b, open_, left, last, scratch, out):  # type: ignore[no-untyped-def]
    """As `UpperAgent.domain_logits`, (K,); `open_` (K, N)."""
    n_layers, row, context = open_.shape[1], scratch.row, scratch.context
    for k in range(len(out)):
        room = 0
        for n in range(n_layers):
            room += open_[k, n]
        if room == 0:
            out[k] = MASKED
            continue
        for j in range(len(row)):
            after = context[j] + (weights.start[j] if last < 0 else given.last[b, last, j])
            row[j] = after + given.domain[b, k, j] + weights.room_bias[j]
        _add_scaled(row, weights.room, 0, np.float32(room / n_layers))
        if open_[k, left - 1]:
            _add_scaled(row, weights.room, 1, np.float32(1))
        if last >= 0:
            for j in range(len(row)):
                row[j] += given.edges[b, k, last, j]
        out[k] = _relu_dot(row, weights.domain_out, weights.domain_out_bias)


@njit(inner=True, borrowing=True, cache=True, nogil=True, error_model="numpy")
def fill_layer_logits(weights, given, b, open_, domain, left, last, fixed, scratch, out):  # type: ignore[no-untyped-def]
    """As `UpperAgent.layer_logits` of one share, (N,); `open_` (K, N) marks the legal numbers of layers."""
    n_layers, own, features = len(out), scratch.row, scratch.features
    for j in range(len(own)):
        own[j] = scratch.context[len(own) + j] + given.layer[b, domain, j] + weights.layer_bias[j]
        if last >= 0:
            own[j] += given.edges[b, domain, last, j]
    begin, end, pace, top = given.begin[b, domain], given.end[b, domain], given.pace[b, domain], 0
    for index in range(n_layers):
        if open_[domain, index]:
            top = index + 1
    filled = 0
    for index in range(n_layers):
        if not open_[domain, index]:
            out[index] = MASKED
            continue
        layers = index + 1
        for i in range(fixed.shape[2]):
            features[i] = fixed[left, index, i]
        features[1] = layers / n_layers * pace
        features[5] = layers == top
        features[6] = left - layers == begin
        features[7] = left - layers == begin and left == end
        features[8] = layers == end - begin
        row = scratch.rows[filled]
        for j in range(len(own)):
            row[j] = own[j]
        for i in range(fixed.shape[2]):
            if abs(features[i]) > NOTHING:
                _add_scaled(row, weights.layer, i, features[i])
        scratch.at[filled] = index
        filled += 1
        if filled == TOGETHER:
            _relu_dots(scratch.rows, weights.layer_out, weights.layer_out_bias, scratch.at, out)
            filled = 0
    for i in range(filled):
        out[scratch.at[i]] = _relu_dot(scratch.rows[i], weights.layer_out, weights.layer_out_bias)


@njit(inner=True, borrowing=True, cache=True, nogil=True, error_model="numpy")
def fill_inner_logits(weights, tables, c, z, layers, behind, n_layers, current, legal_, scratch, out):  # type: ignore[no-untyped-def]
    """As `LowerAgent.logits` of one share, (Q,); see `policy.hippo.tables.features.choice_features`."""
    features, first, second = scratch.features, scratch.inner[0], scratch.inner[1]
    for q in range(len(out)):
        if not legal_[q]:
            out[q] = MASKED
            continue
        for i in range(5):
            features[i] = tables.inner[c, z, q, i]
        features[5], features[6] = layers / n_layers, layers / tables.pp[c, z, q] / n_layers
        features[7], features[8] = behind / 8, q == current
        for j in range(len(first)):
            first[j], second[j] = weights.inner_1_bias[j], weights.inner_2_bias[j]
        for i in range(CHOICE):
            _add_scaled(first, weights.inner_1, i, features[i])
        for i in range(len(first)):
            if first[i] > 0:
                _add_scaled(second, weights.inner_2, i, first[i])
        out[q] = _relu_dot(second, weights.inner_out, weights.inner_out_bias)
