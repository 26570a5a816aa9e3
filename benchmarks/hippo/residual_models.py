"""Two small models of a residual that begin at "there is none", and intervals of what they bring.

Both are fitted on the first 70 % of their rows and held to the rest, which chooses the penalty of the one and
the number of passes of the other; rows are in the order of time. Predicting 0 is among the choices.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from replay.metrics.paired_comparison import PairedDifference
from twin.core.seeds import generator

Float = NDArray[np.float64]
Model = Callable[[Float], Float]
Fit = Callable[[Float, Float], Model]

FITTED = 0.7
PENALTIES = (0.001, 0.01, 0.1, 1.0, 10.0)
"""Of ridge regression, times the number of rows; features have a variance of 1."""
LIMIT = 4.0
"""Features are cut off so many deviations from their mean."""
WIDTH, PASSES, BATCH, RATE, DECAY = 32, 40, 256, 1e-3, 1e-3
MOST_ROWS = 12_000
"""Of a fit of the network; others are left out evenly."""
RESAMPLES = 4_000


def _scaled(features: Float) -> Callable[[Float], Float]:
    mean, deviation = features.mean(axis=0), features.std(axis=0)
    deviation = np.where(deviation > 1e-9, deviation, np.inf)

    def scale(rows: Float) -> Float:
        return np.clip((rows - mean) / deviation, -LIMIT, LIMIT)

    return scale


def ridge(features: Float, target: Float) -> Model:
    """Returns a linear model of targets (N,) or (N, C) by features (N, F), with an intercept."""
    fitted = int(FITTED * len(features))
    trials = [(penalty, _solved(features[:fitted], target[:fitted], penalty)) for penalty in PENALTIES]
    errors = [float(((target[fitted:] - model(features[fitted:])) ** 2).sum()) for _, model in trials]
    best = int(np.argmin(errors))
    if errors[best] >= float((target[fitted:] ** 2).sum()):
        return lambda rows: np.zeros((len(rows), *target.shape[1:]))
    return _solved(features, target, PENALTIES[best])


def _solved(features: Float, target: Float, penalty: float) -> Model:
    scale = _scaled(features)
    rows, middle = scale(features), target.mean(axis=0)
    gram = rows.T @ rows + penalty * len(rows) * np.eye(rows.shape[1])
    weights = np.linalg.solve(gram, rows.T @ (target - middle))
    return lambda other: scale(other) @ weights + middle


def network(features: Float, target: Float) -> Model:
    """Returns a network of two hidden layers, its last weights 0 at first."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    thin = max(1, -(-len(features) // MOST_ROWS))
    features, target = features[::thin], target[::thin]
    fitted, unit = int(FITTED * len(features)), float(target.std()) or 1.0
    scale = _scaled(features[:fitted])
    x, y = (torch.tensor(values, dtype=torch.float32) for values in (scale(features), target / unit))
    layers = torch.nn.Sequential(
        torch.nn.Linear(x.shape[1], WIDTH), torch.nn.SiLU(), torch.nn.Linear(WIDTH, WIDTH), torch.nn.SiLU(),
        torch.nn.Linear(WIDTH, 1),
    )  # fmt: skip
    torch.nn.init.zeros_(layers[-1].weight)
    torch.nn.init.zeros_(layers[-1].bias)
    optimiser = torch.optim.AdamW(layers.parameters(), lr=RATE, weight_decay=DECAY)

    def missed() -> float:
        with torch.no_grad():
            return float(((layers(x[fitted:])[:, 0] - y[fitted:]) ** 2).mean())

    def kept() -> dict[str, torch.Tensor]:
        return {name: value.clone() for name, value in layers.state_dict().items()}

    best, least = kept(), missed()
    for _ in range(PASSES):
        for rows in torch.randperm(fitted).split(BATCH):
            loss = torch.nn.functional.huber_loss(layers(x[rows])[:, 0], y[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        if (error := missed()) < least:
            best, least = kept(), error
    layers.load_state_dict(best)

    def model(rows: Float) -> Float:
        with torch.no_grad():
            found = layers(torch.tensor(scale(rows), dtype=torch.float32))[:, 0]
        return unit * found.numpy().astype(np.float64)

    return model


FITS: dict[str, Fit] = {"ridge": ridge, "network": network}


def share(part: Float, whole: Float, length: int, what: str) -> PairedDifference:
    """Returns sum(part) / sum(whole) over moments (I,) with its 95 % interval: circular block bootstrap
    (Politis and Romano 1992) in stretches of `length` moments, at most a third of them."""
    length = max(1, min(length, len(part) // 3))
    starts = generator(0, f"bootstrap/{what}").integers(
        len(part), size=(RESAMPLES, -(-len(part) // length), 1)
    )
    drawn = ((starts + np.arange(length)) % len(part)).reshape(RESAMPLES, -1)
    low, high = np.quantile(part[drawn].sum(axis=1) / whole[drawn].sum(axis=1), (0.025, 0.975))
    return PairedDifference(what, float(part.sum() / whole.sum()), float(low), float(high))


def area(scores: Float, positive: NDArray[np.bool_]) -> float:
    """Returns the area under the curve of true against false positives; not a number where one class is
    empty. Equal scores count half."""
    good, bad = scores[positive], scores[~positive]
    if not len(good) or not len(bad):
        return float("nan")
    ahead = good[:, None] - bad
    return float(((ahead > 0) + 0.5 * (ahead == 0)).mean())
