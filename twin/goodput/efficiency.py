"""Statistical efficiency of a batch, and the learning rate that goes with it (Pollux, AdaScale)."""

from ingest.core.errors import UsageError


def noise_scale(variance: float, squared_norm: float, batch: float) -> float:
    """Gradient noise scale, samples: the batch at which noise and signal of a gradient are alike.

    `variance`: of the gradient at `batch` samples, summed over its elements; `squared_norm`: of its mean.
    Source: McCandlish et al., arXiv:1812.06162, 2.2; as used by Pollux (Qiao et al., OSDI 2021), 3.1.

    Raises:
        UsageError: the squared norm is not positive, so that the scale is undefined.
    """
    if squared_norm <= 0:
        raise UsageError("the squared norm of the gradient must be positive to give a noise scale")
    return batch * variance / squared_norm


def statistical_efficiency(noise: float, initial: float, batch: float) -> float:
    """Progress of a sample at `batch`, over that of a sample at the initial batch; 1 at the initial batch.

    `noise`: the noise scale, samples. Source: Pollux, OSDI 2021, equation 7: (phi + M0) / (phi + M).
    """
    return (noise + initial) / (noise + batch)


def adascale_gain(noise: float, initial: float, batch: float) -> float:
    """Factor of the learning rate at `batch` that keeps the progress of a step in line with its noise.

    Between 1 (no noise) and batch / initial (noise alone). Source: Johnson et al., AdaScale SGD, ICML 2020,
    equation 4: (sigma^2 + mu^2) / (sigma^2 / S + mu^2), with S = batch / initial and
    sigma^2 / mu^2 = noise / initial.
    """
    return (noise / initial + 1) / (noise / batch + 1)
