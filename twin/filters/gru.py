"""A small recurrent network as a forecaster: one for all links of a data set, learned from training alone.

Inputs of a step: the log value relative to its link's training mean, over the spread of the set, and the log
of the time since the last sample relative to the median step. From the hidden state and the log of the time
ahead, a head says how far the value will have moved from the last one, and the log variance of that. Trained
by the Gaussian likelihood on random stretches; the last 15 % of each window say when to stop. Seeded.
"""

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from twin.filters.kalman_bank import Index
from twin.filters.ou_process import Array

HIDDEN, STRETCH, BATCH = 16, 48, 64
STEPS, EVERY, PATIENCE = 400, 25, 4
AHEAD = (1, 2, 5, 10)
"""Samples ahead of the forecasts that are learned; one is drawn for each stretch."""
_VALIDATE_SHARE, _LEAST_SD, _RATE = 0.15, 1e-3, 5e-3


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRU(2, HIDDEN, batch_first=True)
        self.head = nn.Sequential(nn.Linear(HIDDEN + 1, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 2))

    def move(self, hidden: torch.Tensor, ahead: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and log variance of the move from the last value."""
        mean, log_var = self.head(torch.cat([hidden, ahead[..., None]], dim=-1)).unbind(-1)
        return mean, log_var.clamp(-12, 6)


class Gru:
    """The network, its normalisation and the hidden state (L, HIDDEN) of every link."""

    name = "gru"

    def __init__(self, seed: int = 0, steps: int = STEPS):
        self._seed, self._steps = seed, steps

    def train(self, times_s: Sequence[Array], values: Sequence[Array]) -> None:
        """Learn from random stretches of all windows; the state is then that before any sample."""
        self._mean = np.array([series.mean() for series in values])
        self._scale = max(float(np.sqrt(np.mean([series.var() for series in values]))), _LEAST_SD)
        self._step_s = float(np.median(np.concatenate([np.diff(times) for times in times_s])))
        length = min(STRETCH, min(len(series) for series in values) // 2)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed)
            self._net = _Net()
            self._learn(times_s, values, length, np.random.default_rng(self._seed))
        self._hidden = torch.zeros(len(values), HIDDEN)
        self._last, self._time = np.full(len(values), np.nan), np.full(len(values), np.nan)

    def observe(self, index: Index, times_s: Array, values: Array) -> None:
        """One step of the cell."""
        since = np.where(np.isnan(self._time[index]), self._step_s, times_s - self._time[index])
        seen = np.stack([(values - self._mean[index]) / self._scale, self._log(since)], axis=1)
        rows = torch.from_numpy(index)
        with torch.no_grad():
            _, hidden = self._net.cell(_tensor(seen)[:, None], self._hidden[rows][None])
        self._hidden[rows] = hidden[0]
        self._last[index], self._time[index] = values, times_s

    def predict(self, ahead_s: Array) -> tuple[Array, Array]:
        """The last value plus the learned move."""
        with torch.no_grad():
            hidden = self._hidden.expand(len(ahead_s), *self._hidden.shape)
            mean, log_var = self._net.move(hidden, _tensor(self._log(ahead_s)))
        return (
            self._last + self._scale * mean.double().numpy(),
            self._scale**2 * log_var.double().exp().numpy(),
        )

    def _log(self, seconds: Array) -> Array:
        """Time on the scale of the steps of training."""
        scaled: Array = np.log(np.maximum(seconds, 1e-3 * self._step_s) / self._step_s)
        return scaled

    def _learn(
        self, times_s: Sequence[Array], values: Sequence[Array], length: int, rng: np.random.Generator
    ) -> None:
        """Adam on random stretches; keeps the weights that were best on the validation tail."""
        optimiser = torch.optim.Adam(self._net.parameters(), _RATE)
        cuts = [int((1 - _VALIDATE_SHARE) * len(series)) for series in values]
        validation = self._batch(
            times_s, values, [max(0, c - length) for c in cuts], None, length, rng, 4 * BATCH
        )
        best, stale, kept = np.inf, 0, copy.deepcopy(self._net.state_dict())
        for step in range(self._steps):
            optimiser.zero_grad()
            self._loss(self._batch(times_s, values, None, cuts, length, rng, BATCH)).backward()
            optimiser.step()
            if (step + 1) % min(EVERY, self._steps) == 0:
                with torch.no_grad():
                    loss = float(self._loss(validation))
                stale = 0 if loss < best else stale + 1
                if stale == 0:
                    best, kept = loss, copy.deepcopy(self._net.state_dict())
                if stale == PATIENCE:
                    break
        self._net.load_state_dict(kept)

    def _batch(
        self,
        times_s: Sequence[Array],
        values: Sequence[Array],
        starts: Sequence[int] | None,
        ends: Sequence[int] | None,
        length: int,
        rng: np.random.Generator,
        size: int,
    ) -> tuple[torch.Tensor, ...]:
        """`size` stretches of `length` steps between `starts` and `ends`: inputs, time ahead, move ahead."""
        inputs, ahead, moves = [], [], []
        furthest = [a for a in AHEAD if a < length]
        for _ in range(size):
            link, h = int(rng.integers(len(values))), int(rng.choice(furthest))
            first = starts[link] if starts else 0
            last = (ends[link] if ends else len(values[link])) - length - h
            at = int(rng.integers(first, max(first + 1, last)))
            at = min(at, len(values[link]) - length - h)
            t = times_s[link][at : at + length + h]
            z = (values[link][at : at + length + h] - self._mean[link]) / self._scale
            since = np.diff(t[:length], prepend=t[0] - self._step_s)
            inputs.append(np.stack([z[:length], self._log(since)], axis=1))
            ahead.append(self._log(t[h:] - t[:length]))
            moves.append(z[h:] - z[:length])
        return _tensor(np.array(inputs)), _tensor(np.array(ahead)), _tensor(np.array(moves))

    def _loss(self, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Negative log likelihood of the moves, the first quarter of each stretch left to warm up."""
        inputs, ahead, moves = batch
        hidden, _ = self._net.cell(inputs)
        mean, log_var = self._net.move(hidden, ahead)
        loss = 0.5 * (log_var + (moves - mean) ** 2 * torch.exp(-log_var))
        return loss[:, inputs.shape[1] // 4 :].mean()


def _tensor(values: Array) -> torch.Tensor:
    return torch.from_numpy(np.asarray(values, np.float32))
