"""Small recurrent network as a forecaster, one for all links, trained on their training series alone.

Inputs of a step: the log value relative to its link's training mean, over the spread of the set, and the log
of the time since the last sample relative to the median step. From the hidden state and the log of the time
ahead, a head gives the mean and the log variance of the change from the last value. Trained by the Gaussian
likelihood on random stretches; early stopping on the last 15 % of each series. Seeded.
"""

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from twin.filters.kalman_bank import Index
from twin.filters.ou_process import MIN_SAMPLES, Array

HIDDEN, STRETCH, BATCH = 16, 48, 64
STEPS, EVERY, PATIENCE = 400, 25, 4
_VALIDATE_SHARE, _LEAST_SD, _RATE = 0.15, 1e-3, 5e-3


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRU(2, HIDDEN, batch_first=True)
        self.head = nn.Sequential(nn.Linear(HIDDEN + 1, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 2))

    def change(self, hidden: torch.Tensor, ahead: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and log variance of the change from the last value."""
        mean, log_var = self.head(torch.cat([hidden, ahead[..., None]], dim=-1)).unbind(-1)
        return mean, log_var.clamp(-12, 6)


class _Stretches:
    """Random stretches of `length` steps of training series, each with a horizon of `ahead` samples.

    `times_s` and normalised `values` (n_l,) of every link; times are given in units of `step_s`.
    """

    def __init__(
        self, times_s: Sequence[Array], values: Sequence[Array], step_s: float, ahead: Sequence[int]
    ):
        self._times, self._values = [times / step_s for times in times_s], values
        shortest = min(len(series) for series in values)
        self._length = min(STRETCH, shortest // 2)
        most = shortest - self._length
        self._ahead = [a for a in ahead if a <= most] or [most]

    def draw(
        self, size: int, rng: np.random.Generator, *, validation: bool = False
    ) -> tuple[torch.Tensor, ...]:
        """Inputs (size, length, 2), log time ahead and change ahead (size, length) of random stretches.

        They lie in the first part of the series, or in their validation tail.
        """
        inputs, ahead, changes = [], [], []
        for _ in range(size):
            link, h = int(rng.integers(len(self._values))), int(rng.choice(self._ahead))
            total = len(self._values[link])
            cut, needed = int((1 - _VALIDATE_SHARE) * total), self._length + h
            first = max(0, cut - self._length) if validation else 0
            last = (total if validation else cut) - needed
            start = min(int(rng.integers(first, max(first + 1, last))), total - needed)
            t, z = self._times[link][start : start + needed], self._values[link][start : start + needed]
            since = np.diff(t[: self._length], prepend=t[0] - 1)
            inputs.append(np.stack([z[: self._length], _log(since)], axis=1))
            ahead.append(_log(t[h:] - t[: self._length]))
            changes.append(z[h:] - z[: self._length])
        return _tensor(np.array(inputs)), _tensor(np.array(ahead)), _tensor(np.array(changes))


class Gru:
    """Network, its normalisation and the hidden state (L, HIDDEN) of every link.

    `ahead` are the horizons of training, in samples; one is drawn for each stretch. Links of fewer than
    `MIN_SAMPLES` samples are not learned from; without any other the network stays as it was initialised.
    """

    def __init__(self, ahead: Sequence[int] = (1, 2, 5, 10), seed: int = 0):
        self._ahead, self._seed = ahead, seed

    def train(self, times_s: Sequence[Array], values: Sequence[Array]) -> None:
        """Learns from random stretches of all series; the state is then that before any sample."""
        torch.set_num_threads(1)  # small tensors; and sums in a fixed order
        self._mean = np.array([series.mean() for series in values])
        self._scale = max(float(np.sqrt(np.mean([series.var() for series in values]))), _LEAST_SD)
        steps = np.concatenate([np.diff(times) for times in times_s])
        self._step_s = float(np.median(steps)) if len(steps) else 1.0
        long = [link for link, series in enumerate(values) if len(series) >= MIN_SAMPLES]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed)
            self._net = _Net()
        if long:
            normal = [(values[link] - self._mean[link]) / self._scale for link in long]
            self._learn(_Stretches([times_s[link] for link in long], normal, self._step_s, self._ahead))
        self._hidden = torch.zeros(len(values), HIDDEN)
        self._last, self._time = self._mean.copy(), np.full(len(values), np.nan)

    def observe(self, index: Index, times_s: Array, values: Array) -> None:
        """One step of the cell."""
        since = np.where(np.isnan(self._time[index]), self._step_s, times_s - self._time[index])
        seen = np.stack([(values - self._mean[index]) / self._scale, _log(since / self._step_s)], axis=1)
        rows = torch.from_numpy(index)
        with torch.no_grad():
            _, hidden = self._net.cell(_tensor(seen)[:, None], self._hidden[rows][None])
        self._hidden[rows] = hidden[0]
        self._last[index], self._time[index] = values, times_s

    def predict(self, ahead_s: Array) -> tuple[Array, Array]:
        """Last value plus the learned change; horizons below one step, the least that was learned, count as
        one."""
        ahead = _tensor(_log(np.maximum(ahead_s / self._step_s, 1.0)))
        with torch.no_grad():
            mean, log_var = self._net.change(self._hidden.expand(len(ahead), *self._hidden.shape), ahead)
        return (
            self._last + self._scale * mean.double().numpy(),
            self._scale**2 * log_var.double().exp().numpy(),
        )

    def _learn(self, stretches: _Stretches) -> None:
        """Adam on random stretches; keeps the weights that were best on the validation tail."""
        rng = np.random.default_rng(self._seed)
        optimiser = torch.optim.Adam(self._net.parameters(), _RATE)
        validation = stretches.draw(4 * BATCH, rng, validation=True)
        best, stale, kept = np.inf, 0, copy.deepcopy(self._net.state_dict())
        for step in range(STEPS):
            optimiser.zero_grad()
            self._loss(stretches.draw(BATCH, rng)).backward()
            optimiser.step()
            if (step + 1) % min(EVERY, STEPS) == 0:
                with torch.no_grad():
                    loss = float(self._loss(validation))
                stale = 0 if loss < best else stale + 1
                if stale == 0:
                    best, kept = loss, copy.deepcopy(self._net.state_dict())
                if stale == PATIENCE:
                    break
        self._net.load_state_dict(kept)

    def _loss(self, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Negative log likelihood of the changes; the first quarter of each stretch warms up."""
        inputs, ahead, changes = batch
        hidden, _ = self._net.cell(inputs)
        mean, log_var = self._net.change(hidden, ahead)
        loss = 0.5 * (log_var + (changes - mean) ** 2 * torch.exp(-log_var))
        return loss[:, inputs.shape[1] // 4 :].mean()


def _log(steps: Array) -> Array:
    """Log of a time in steps, bounded below."""
    scaled: Array = np.log(np.maximum(steps, 1e-3))
    return scaled


def _tensor(values: Array) -> torch.Tensor:
    return torch.from_numpy(np.asarray(values, np.float32))
