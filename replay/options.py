"""What people type after `--weights` and `--perturb`, checked and put into a scenario."""

from pydantic import ValidationError

from ingest.errors import UsageError
from twin import scenario as scenarios
from twin.scenario import Scenario
from twin.settings import Noise, Weights

SD_OF_CLIP = 0.5
"""Standard deviation of added noise, as a share of where it is clipped: that of `storm`."""


def scenario(name: str, weights: str | None = None) -> Scenario:
    """The scenario of that name or file, with `weights` (see `parse_weights`) instead of its own."""
    found = scenarios.load(name)
    return found if weights is None else weighted(found, parse_weights(weights))


def weighted(scenario: Scenario, weights: Weights) -> Scenario:
    """The same scenario with another objective."""
    return scenario.model_copy(update={"weights": weights})


def noisy(scenario: Scenario, noise: Noise) -> Scenario:
    """The same scenario with this noise on every link; its regimes stay."""
    return scenario.model_copy(
        update={"perturbation": scenario.perturbation.model_copy(update={"noise": noise})}
    )


def parse_weights(text: str) -> Weights:
    """Weights from "0.6,0.2,0.2": efficiency, utilisation, cost.

    Raises:
        UsageError: not three numbers, one is negative, or they do not sum to 1.
    """
    values = _numbers(text, "--weights", "three numbers as in 0.6,0.2,0.2 (efficiency, utilisation, cost)")
    if len(values) != 3:
        raise UsageError(
            f"--weights {text}: {len(values)} numbers; give three: efficiency, utilisation, cost, as in "
            "0.6,0.2,0.2"
        )
    try:
        return Weights(efficiency=values[0], utilisation=values[1], cost=values[2])
    except ValidationError as error:
        raise UsageError(f"--weights {text}: {_first(error)}") from error


def parse_noises(text: str) -> tuple[Noise, ...]:
    """Levels of noise from "0.1,0.3": each is clipped to that share of the bandwidth.

    Raises:
        UsageError: not numbers between 0 and 1, or one of them twice.
    """
    clips = _numbers(text, "--perturb", "numbers as in 0.1,0.3")
    if len(set(clips)) < len(clips):
        raise UsageError(f"--perturb {text}: a level appears twice")
    try:
        return tuple(Noise(clip=clip, sd=SD_OF_CLIP * clip) for clip in clips)
    except ValidationError as error:
        raise UsageError(f"--perturb {text}: every level lies between 0 and 1: {_first(error)}") from error


def _numbers(text: str, option: str, wanted: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError(f"{option} {text}: give {wanted}") from error


def _first(error: ValidationError) -> str:
    fault = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in fault["loc"])
    message = fault["msg"].removeprefix("Value error, ")
    return f"{where}: {message}" if where else message
