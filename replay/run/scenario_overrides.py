"""Values of the options `--weights`, `--perturb`, `--load` and `--link`, checked and put into a scenario."""

import re
from collections.abc import Sequence

from pydantic import ValidationError

from ingest.core import config
from ingest.core.errors import UsageError
from twin.scenario import prepare
from twin.scenario.prepare import Scenario
from twin.settings.disturbances import LinkChange, Noise
from twin.settings.scenario_file import ObjectiveWeights

SD_OF_CLIP = 0.5
"""Standard deviation of added noise over its clipping level, as in scenario `storm`."""


_LINK = re.compile(
    r"(?P<src>[^<>=@]+?)\s*(?P<both><?)>\s*(?P<dst>[^<>=@]+?)\s*=\s*x?\s*(?P<factor>[^@+x]+?)\s*"
    r"(@\s*(?P<at>[^+]+?)\s*(\+\s*(?P<length>.+?))?)?"
)


def scenario(given: str | Scenario, weights: str | None = None, links: Sequence[str] = ()) -> Scenario:
    """Returns the scenario of that name or file, or the one given, with `weights` (see `parse_weights`) and
    changed `links`."""
    chosen = given if isinstance(given, Scenario) else prepare.load(given)
    found = relinked(chosen, [parse_link(text) for text in links])
    return found if weights is None else weighted(found, parse_weights(weights))


def relinked(scenario: Scenario, changes: Sequence[LinkChange]) -> Scenario:
    """Returns the same scenario with these changes of links added to its own.

    Raises:
        UsageError: a change names a domain that the scenario does not have, or one domain twice.
    """
    known = (*scenario.domains, "*")
    for change in changes:
        if change.src == change.dst != "*":
            raise UsageError(f"--link: {change.src} > {change.dst} is no link: name two domains")
        for end in (change.src, change.dst):
            if end not in known:
                hint = config.suggestion(end, known) or f"; it has {', '.join(scenario.domains)}"
                raise UsageError(f"--link: {scenario.name} has no domain {end!r}{hint}")
    return scenario.model_copy(update={"link_changes": scenario.link_changes + tuple(changes)})


def parse_link(text: str) -> LinkChange:
    """Parses a change of bandwidth: "a > b = 0.5" or "= 50%"; "a <> b": both ways; "@ 3600 + 600": start and
    length, s.

    Raises:
        UsageError: not of that form.
    """
    wanted = (
        'write "a > b = 0.5" or "a > b = 50%", "a <> b = 0.5" for both ways, or "a > b = 0.5 @ 3600 + 600" '
        "(seconds); * is every domain"
    )
    found = _LINK.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"--link {text!r}: {wanted}")
    try:
        return LinkChange(
            src=found["src"],
            dst=found["dst"],
            bandwidth_factor=_factor(found["factor"]),
            at_s=None if found["at"] is None else float(found["at"]),
            for_s=None if found["length"] is None else float(found["length"]),
            both_ways=bool(found["both"]),
        )
    except ValidationError as error:
        raise UsageError(f"--link {text!r}: {_first(error)}") from error
    except ValueError as error:
        raise UsageError(f"--link {text!r}: {error}; {wanted}") from error


def _factor(text: str) -> float:
    """A factor as typed: 0.5, or 50 %."""
    share = text.removesuffix("%")
    return float(text) if share == text else float(share.strip()) / 100


def weighted(scenario: Scenario, weights: ObjectiveWeights) -> Scenario:
    """Returns the same scenario with these weights of the objective."""
    return scenario.model_copy(update={"weights": weights})


def noisy(scenario: Scenario, noise: Noise) -> Scenario:
    """Returns the same scenario with this noise on every link; its regimes stay."""
    return scenario.model_copy(
        update={"perturbation": scenario.perturbation.model_copy(update={"noise": noise})}
    )


def parse_weights(text: str) -> ObjectiveWeights:
    """Parses weights from "0.6,0.2,0.2": efficiency, utilisation, cost.

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
        return ObjectiveWeights(efficiency=values[0], utilisation=values[1], cost=values[2])
    except ValidationError as error:
        raise UsageError(f"--weights {text}: {_first(error)}") from error


def parse_noises(text: str) -> tuple[Noise, ...]:
    """Parses levels of noise from "0.1,0.3": each is clipped to that share of the bandwidth.

    Raises:
        UsageError: not numbers between 0 and 1, or one of them twice.
    """
    clips = _numbers(text, "--perturb", "numbers as in 0.1,0.3")
    if len(set(clips)) < len(clips):
        raise UsageError(f"--perturb {text}: a level appears twice; leave one out")
    try:
        return tuple(Noise(clip=clip, sd=SD_OF_CLIP * clip) for clip in clips)
    except ValidationError as error:
        raise UsageError(f"--perturb {text}: every level lies between 0 and 1, as in 0.1,0.3") from error


def parse_loads(text: str) -> tuple[float, ...]:
    """Parses loads from "0.8,1.2": arrival rates of jobs over that of the scenario.

    Raises:
        UsageError: not positive numbers, or one of them twice.
    """
    loads = _numbers(text, "--load", "numbers as in 0.8,1.2")
    if any(not 0 < load < float("inf") for load in loads):
        raise UsageError(f"--load {text}: every load is greater than 0; 1 is the scenario's own")
    if len(set(loads)) < len(loads):
        raise UsageError(f"--load {text}: a load appears twice; leave one out")
    return tuple(loads)


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
