"""Plan files: a plan with the model and the domains that it is for, as YAML that people read."""

from pathlib import Path
from typing import Any

import yaml

from ingest.core import config, durable, safe_yaml, text_files
from ingest.core.errors import DamageError, InputError, UsageError
from replay.planning.figures import PlanFigures
from replay.store.decision_codec import plan_from_json
from twin.core.plan import Plan, to_json
from twin.scenario.prepare import Scenario, load, names

SCHEMA = "twin.plan-file/1"


def write(path: Path, scenario: Scenario, chosen: PlanFigures) -> None:
    """Writes a plan for `twin replay --plan`, with what it is expected to do; replaces an older file.

    Raises:
        StorageError: the file cannot be written.
    """
    expected = {
        "tokens_per_s": round(chosen.mean_tokens_per_s, 1),
        "iteration_s": round(chosen.iteration_s, 3),
        "egress_usd_per_day": round(chosen.egress_usd_per_day, 2),
        **_cost(chosen),
    }
    body = {
        "schema": SCHEMA,
        "scenario": scenario.name,
        "model": scenario.model,
        "domains": list(scenario.domains),
        "expected": expected,
        "plan": to_json(chosen.plan),
        **({} if _ships(scenario) else {"world": scenario.model_dump(mode="json")}),
    }
    plain = yaml.safe_dump(_plain(body), sort_keys=False, allow_unicode=True, default_flow_style=None)
    durable.write_output(path, plain.encode())


def _cost(chosen: PlanFigures) -> dict[str, Any]:
    """MFU and USD per 1e9 tokens of a plan, rounded; sites whose GPUs have no price, where there are any."""
    cost = chosen.cost
    each = {name: None if usd is None else round(usd, 2) for name, usd in cost.per_billion_tokens().items()}
    found: dict[str, Any] = {
        "mfu": None if cost.mfu is None else round(cost.mfu, 4),
        "usd_per_1e9_tokens": each,
    }
    if cost.unpriced:
        found["gpus_without_price"] = list(cost.unpriced)
    return found


def world(path: Path) -> Scenario:
    """Returns the scenario that the plan of a file is for: a shipped one by its name, any other as it stands
    in the file.

    Raises:
        InputError: it is no plan file. NotFoundError, UsageError: its scenario does not ship, or is none.
    """
    found = _document(path)
    if "world" in found:
        return config.parse(Scenario, found["world"], source=f"{path}: world")
    return load(str(found.get("scenario")))


def read(path: Path, scenario: Scenario) -> Plan:
    """Returns the plan of a file for `scenario`.

    Raises:
        UsageError: it is for another model or other domains. InputError: it is no plan file.
    """
    found = _document(path)
    for what, own in (("model", scenario.model), ("domains", list(scenario.domains))):
        if found.get(what) != own:
            raise UsageError(
                f"{path}: a plan for the {what} {_words(found.get(what))}, but {scenario.name} has "
                f"{_words(own)}; make one with `twin plan --scenario {scenario.name} --out FILE`"
            )
    try:
        plan = plan_from_json(found.get("plan"))
    except DamageError as error:
        raise InputError(f"{path}: {error}") from error
    if plan is None:
        raise InputError(f"{path}: the key `plan` is missing; `twin plan --out FILE` writes one")
    return plan


def _document(path: Path) -> dict[str, Any]:
    found = safe_yaml.parsed(path, text_files.read(path), UsageError).value
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise InputError(f"{path}: no plan file (schema {SCHEMA}); `twin plan --out FILE` writes one")
    return found


def _ships(scenario: Scenario) -> bool:
    return scenario.name in names() and load(scenario.name) == scenario


def _words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _plain(value: Any) -> Any:
    """Returns lists in place of tuples, which YAML would tag."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
