"""Scores of the legal numbers of layers, in compiled code with a gradient of its own.

A minibatch has thousands of them, and most of their features are 0. As tensor operations every step of the
head would write and read a row of the hidden width for each; here a row is used while it is in the cache.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ingest.core.compiled import njit

NOTHING = 1e-20
"""Features below it add nothing in 32 bits, and their products are slow subnormals."""


class LayerScores(torch.autograd.Function):
    """relu(own[share] + features . weight^T + bias) . out + out_bias, (M,).

    `own` (R, h), `weight` (h, F), `bias` (h,), `out` (1, h), `out_bias` (1,); `share` (M,) ascends and
    `features` (M, F) have no gradient.
    """

    @staticmethod
    def forward(
        ctx: Any,
        own: Tensor,
        weight: Tensor,
        bias: Tensor,
        out: Tensor,
        out_bias: Tensor,
        share: Tensor,
        features: Tensor,
    ) -> Tensor:
        """Returns the scores."""
        base, columns = own + bias, weight.t().contiguous()
        mixed = own.new_empty(len(share), own.shape[1])
        scores = own.new_empty(len(share))
        given = base, columns, out[0], share, features
        _score(*(part.detach().numpy() for part in (*given, mixed, scores)))
        ctx.save_for_backward(mixed, columns, out, share, features)
        ctx.shares = len(own)
        return scores + out_bias

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Returns the gradients of `own` and of the weights."""
        mixed, columns, out, share, features = ctx.saved_tensors
        own = columns.new_zeros(ctx.shares, columns.shape[1])
        weight, last = torch.zeros_like(columns), torch.zeros_like(out)
        given = grad.contiguous(), mixed, out[0], share, features
        _add_gradients(*(part.detach().numpy() for part in (*given, own, weight, last[0])))
        return own, weight.t(), own.sum(0), last, grad.sum().reshape(1), None, None


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def _score(base, columns, out, share, features, mixed, scores):  # type: ignore[no-untyped-def]
    """Fills `mixed` (M, h), the input of relu, and `scores` (M,)."""
    h = base.shape[1]
    row = np.empty(h, np.float32)
    for m in range(len(share)):
        row[:] = base[share[m]]
        for i in range(features.shape[1]):
            by = features[m, i]
            if abs(by) > NOTHING:
                for j in range(h):
                    row[j] += by * columns[i, j]
        total = np.float32(0)
        for j in range(h):
            total += max(row[j], np.float32(0)) * out[j]
        scores[m] = total
        mixed[m] = row


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def _add_gradients(grad, mixed, out, share, features, own, weight, last):  # type: ignore[no-untyped-def]
    """Adds the gradients to those of `own` (R, h), of the weights (F, h) and of `out`, as `last` (h,)."""
    h = own.shape[1]
    row = np.empty(h, np.float32)
    for m in range(len(share)):
        by = grad[m]
        if by == 0:
            continue
        given, to = mixed[m], own[share[m]]
        for j in range(h):
            open_ = given[j] > 0
            last[j] += by * given[j] if open_ else np.float32(0)
            row[j] = by * out[j] if open_ else np.float32(0)
            to[j] += row[j]
        for i in range(features.shape[1]):
            value = features[m, i]
            if abs(value) > NOTHING:
                for j in range(h):
                    weight[i, j] += value * row[j]
