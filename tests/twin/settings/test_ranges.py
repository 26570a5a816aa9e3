"""Numbers of scenarios and of Hi-PPO's settings: each has a finite range, and says it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from ingest.core.config import Config
from ingest.core.errors import UsageError
from ingest.core.ranges import Within
from policy.hippo.networks.hippo_config import HiPpoConfig
from tests.support.worlds import toy_scenario
from twin.scenario import prepare
from twin.settings.scenario_file import Scenario


def numbers(annotation: Any, path: str, metadata: tuple[Any, ...] = ()) -> Iterator[tuple[str, bool]]:
    """Every number below a type: where it is, and if it has a range."""
    if annotation in (int, float):
        yield path, any(isinstance(one, Within) for one in metadata)
    elif isinstance(annotation, type) and issubclass(annotation, Config):
        for name, field in annotation.model_fields.items():
            yield from numbers(field.annotation, f"{path}.{name}", tuple(field.metadata))
    elif hasattr(annotation, "__metadata__"):
        yield from numbers(annotation.__origin__, path, annotation.__metadata__)
    else:
        for inner in get_args(annotation):
            yield from numbers(inner, path, metadata)


@pytest.mark.parametrize("cls", [Scenario, HiPpoConfig])
def test_every_number_has_a_range(cls: type[Config]) -> None:
    found = dict(numbers(cls, cls.__name__))
    assert len(found) > 40
    assert [path for path, ranged in found.items() if not ranged] == []


WRONG: dict[str, list[tuple[Any, str]]] = {
    "cluster.domains.0.gpus": [
        (10**18, "must be 1 to 1,000,000: the largest sites have some 200,000 GPUs, not 1000000000000000000"),
        (True, "must be a number, 1 to 1,000,000; true and false are none"),
        (0, "must be 1 to"), (-1, "must be 1 to"), (1.5, "integer"), ("many", "integer"), (None, "integer"),
        ([8], "integer"),
    ],
    "cluster.hardware.intra_node_bps": [
        (1e-320, "must be 1 to 1e+18: in bits per second"), (float("inf"), "finite"),
        (float("nan"), "finite"), (-1.0, "must be 1 to"), (False, "true and false are none"),
        ("1e999", "finite"),
        ("fast", "number"),
    ],
    "control.period_s": [(0, "0.001 to 3.2e+09"), (1e300, "0.001 to 3.2e+09"), (1e-9, "0.001 to")],
    "job.global_batch": [(9_999_999_999, "must be 1 to 10,000,000"), (10**300, "must be 1 to")],
    "wan.cap_bps": [(0, "must be 1 to")],
    "seed": [(2**63, "64-bit integers"), (-1, "64-bit integers")],
    "weights.efficiency": [(1.5, "must be 0 to 1"), (True, "true and false are none")],
}  # fmt: skip


@pytest.mark.parametrize(("key", "value", "says"), [(k, *v) for k, values in WRONG.items() for v in values])
def test_a_number_out_of_range_is_refused_with_the_range(
    key: str, value: Any, says: str, tmp_path: Path
) -> None:
    document = toy_scenario(3).model_dump(mode="json", exclude_none=True)
    *parents, last = key.split(".")
    holder: Any = document
    for name in parents:
        holder = holder[int(name) if isinstance(holder, list) else name]
    holder[last] = value
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    with pytest.raises(UsageError) as caught:
        prepare.load(str(path))
    message = str(caught.value)
    assert f" {key}: " in message and says in message
    assert len(message.splitlines()) <= 3 and len(message) < 500


@pytest.mark.parametrize(
    ("key", "entry", "most"),
    [
        ("outages", {"src": "d0", "dst": "d1", "at_s": 1, "for_s": 1}, 1000),
        ("slowdowns", {"domain": "d0", "factor": 2, "at_s": 1, "for_s": 1}, 1000),
    ],
)
def test_lists_are_no_longer_than_can_be_worked_with(key: str, entry: Any, most: int, tmp_path: Path) -> None:
    document = toy_scenario(3).model_dump(mode="json", exclude_none=True)
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(document | {key: [entry] * most}))
    assert len(getattr(prepare.load(str(path)), key)) == most
    path.write_text(yaml.safe_dump(document | {key: [entry] * (most + 1)}))
    with pytest.raises(UsageError, match=f"{key} holds 1,001 entries; write at most 1,000"):
        prepare.load(str(path))


def test_shipped_scenarios_are_inside_all_ranges() -> None:
    assert [prepare.load(name).name for name in prepare.names()] == list(prepare.names())
