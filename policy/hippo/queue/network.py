"""Scorer and critic as torch modules, and the scorer as the array that the kernel plays."""

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from twin.queue.jobs import Float
from twin.queue.recipe import JobScorer
from twin.queue.scoring import FEATURES

WIDTHS = (len(FEATURES), 32, 16, 8, 1)
SMALL_WIDTHS = (len(FEATURES), 6, 1)
"""The control: 67 weights."""
CRITIC_UNITS = 32


def network(widths: tuple[int, ...], seed: int) -> nn.Sequential:
    """Returns a multilayer perceptron with rectified linear units; its start follows from the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = [
            layer
            for below, above in pairwise(widths)
            for layer in (nn.Linear(below, above, dtype=torch.float64), nn.ReLU())
        ]
    return nn.Sequential(*layers[:-1])


def critic(seed: int, features: int = len(FEATURES)) -> nn.Sequential:
    """Returns a network that tells what is still to come from the state of the queue (`queue_state`)."""
    return network((2 * features + 1, CRITIC_UNITS, 1), seed)


def scorer_of(module: nn.Sequential) -> JobScorer:
    """Returns a network as the kernel plays it."""
    layers = [layer for layer in module if isinstance(layer, nn.Linear)]
    widths = (layers[0].in_features, *(layer.out_features for layer in layers))
    parts = [array.detach().numpy().ravel() for layer in layers for array in (layer.weight.T, layer.bias)]
    return JobScorer(widths, np.concatenate(parts))


def restore(module: nn.Sequential, weights: Float) -> None:
    """Gives a network the weights of a scorer."""
    used = 0
    with torch.no_grad():
        for layer in module:
            if isinstance(layer, nn.Linear):
                inputs, outputs = layer.in_features, layer.out_features
                count = inputs * outputs
                held = torch.from_numpy(weights[used : used + count + outputs].copy())
                layer.weight.copy_(held[:count].reshape(inputs, outputs).T)
                layer.bias.copy_(held[count:])
                used += count + outputs


def choice_of(begin: Tensor, rows: int) -> Tensor:
    """Returns the choice of each row (rows,), by number; choices are runs of rows that begin there (k,)."""
    lengths = torch.diff(begin, append=torch.tensor([rows]))
    return torch.repeat_interleave(torch.arange(len(begin)), lengths)


def log_probabilities(logits: Tensor, begin: Tensor) -> Tensor:
    """Returns the log-probability of the first row of each choice (k,) under the softmax over its rows."""
    choice = choice_of(begin, len(logits))
    largest = torch.full((len(begin),), -torch.inf, dtype=logits.dtype)
    largest = largest.scatter_reduce(0, choice, logits.detach(), "amax")
    sums = torch.zeros_like(largest).index_add(0, choice, torch.exp(logits - largest[choice]))
    return logits[begin] - largest - torch.log(sums)


def queue_state(rows: Tensor, begin: Tensor) -> Tensor:
    """Returns the state of the queue at each choice (k, 19): mean and largest of every feature, log count."""
    choice, shape = choice_of(begin, len(rows)), (len(begin), rows.shape[1])
    count = torch.bincount(choice, minlength=len(begin)).to(rows.dtype)[:, None]
    mean = torch.zeros(shape, dtype=rows.dtype).index_add(0, choice, rows) / count
    wide = choice[:, None].expand_as(rows)
    largest = torch.full(shape, -torch.inf, dtype=rows.dtype).scatter_reduce(0, wide, rows, "amax")
    return torch.cat((mean, largest, torch.log(count) / 5), dim=1)
