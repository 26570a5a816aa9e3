"""Autoregressive decoding of plans, share by share from the last to the first, in compiled code.

A share is three choices (domain, number of layers, inner configuration), each under the exact mask of the
partial plan and scored by a head of the agents (`policy.hippo.decoding.step_heads`). Compiled, a step takes
microseconds; as many small tensor operations it would take far longer. The same heads in torch
(`policy.hippo.networks.upper_agent`, `policy.hippo.networks.lower_agent`) serve learning; tested equal.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ingest.core.compiled import njit
from policy.hippo.decoding.step_heads import (
    TOGETHER,
    ChoiceTables,
    DecoderInput,
    HeadWeights,
    StepScratch,
    draw,
    fill_context,
    fill_domain_logits,
    fill_inner_logits,
    fill_layer_logits,
)
from policy.hippo.networks.lower_agent import LowerAgent
from policy.hippo.networks.upper_agent import SPLITS, UpperAgent
from policy.hippo.tables.masks import MaskTables, legal, open_steps
from policy.hippo.tables.observation import CHOICE

Float = NDArray[np.float32]
Int = NDArray[np.int64]
Bool = NDArray[np.bool_]


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
    n_layers, h, q_most = masks.limit.shape[3] - 1, given.domain.shape[2], tables.pp.shape[2]
    scratch = StepScratch(
        np.empty(2 * h, np.float32),
        np.empty(h, np.float32),
        np.empty((TOGETHER, h), np.float32),
        np.empty(TOGETHER, np.int64),
        np.empty(max(tables.layer.shape[2], CHOICE), np.float32),
        np.empty((2, weights.inner_1.shape[1]), np.float32),
        np.empty(max(n_layers, k, q_most)),
    )
    domain_logits, layer_logits = np.empty(k, np.float32), np.empty(n_layers, np.float32)
    inner_logits, used, most = np.empty(q_most, np.float32), np.empty(k, np.bool_), 0
    for b in range(batch):
        # not 0 and -1: a literal is a type of its own, for which all that is called is compiled once more
        c, left, behind, last, step = knob[b], n_layers, np.int64(0), np.int64(-1), np.int64(0)
        used[:] = False
        code = np.int64(0)
        for z in masks.class_of:
            code += masks.strides[z]
        while left > 0:
            open_, legal_ = plans.open[b, step], plans.legal[b, step]
            open_steps(masks, c, used, code, left, behind, open_)
            fill_context(weights, given, b, left, step, last < 0, n_layers, scratch)
            fill_domain_logits(weights, given, b, open_, left, last, scratch, domain_logits)
            domain, log_prob = draw(domain_logits, uniform[b, 3 * step], scratch.share)
            plans.log_prob[b] += log_prob
            fill_layer_logits(
                weights, given, b, open_, domain, left, last, tables.layer, scratch, layer_logits
            )
            less_one, log_prob = draw(layer_logits, uniform[b, 3 * step + 1], scratch.share)
            plans.log_prob[b] += log_prob
            layers, z = less_one + 1, masks.class_of[domain]
            code -= masks.strides[z]
            s = min(behind, masks.reach.shape[3] - 1)
            for q in range(q_most):
                legal_[q] = legal(masks, c, z, q, code, left, s, layers)
            current = given.current[b, domain]
            fill_inner_logits(
                weights, tables, c, z, layers, behind, n_layers, current, legal_, scratch, inner_logits
            )
            choice, log_prob = draw(inner_logits, uniform[b, 3 * step + 2], scratch.share)
            plans.lower_log_prob[b] += log_prob
            plans.domain[b, step], plans.layers[b, step], plans.choice[b, step] = domain, layers, choice
            plans.behind[b, step] = behind
            used[domain] = True
            left -= layers
            behind += tables.pp[c, z, choice]
            last = domain
            step += 1
        plans.behind[b, step:] = behind
        most = max(most, int(step))
    return most


@njit(cache=True, nogil=True, error_model="numpy")
def sample_rows(logits, uniform):  # type: ignore[no-untyped-def]
    """Returns an index of each row of `logits` (R, A) by `uniform` (R,), and its log-probability."""
    index, log_prob, share = np.empty(len(logits), np.int64), np.empty(len(logits)), np.empty(logits.shape[1])
    for row in range(len(logits)):
        index[row], log_prob[row] = draw(logits[row], uniform[row], share)
    return index, log_prob
