"""Files of learned orders: a network, its provenance, and a digest that finds damage; JSON, no code in it."""

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from ingest.core import durable, safe_json
from ingest.core.errors import DamageError, InputError, NotFoundError
from ingest.core.terminal import SENTENCE, clipped, shown
from policy.queue.registry import LEARNED
from twin.queue.jobs import Int, QueueJobs
from twin.queue.recipe import JobScorer, OrderKeys, QueueRecipe
from twin.queue.scoring import FEATURES, weights_in

SCHEMA = "twin.queue-order/1"
WIDEST, DEEPEST = 256, 8
"""Largest layer and most layers of a file that is read."""
SOURCES = {
    "evolution": "Salimans et al., 2017",
    "dd-ppo": "Sgambati et al., 2025, from its abstract",
    "sla-morl": "after Mostafa et al., 2025, from its abstract",
}
"""Source of each method but Hi-PPO."""


@dataclass(frozen=True, eq=False)
class LearnedOrder:
    """A network and how it was made: method, logs, seed, minutes, heuristic that it began at."""

    scorer: JobScorer
    provenance: dict[str, Any]

    @property
    def recipe(self) -> QueueRecipe:
        """The scheduler: this order inside EASY."""

        def keys(jobs: QueueJobs, predicted_ns: Int) -> OrderKeys:
            return OrderKeys.scored(len(jobs), self.scorer)

        made = f"{self.provenance.get('method', '?')} from {self.provenance.get('heuristic', '?')}"
        source = SOURCES.get(str(self.provenance.get("method")), "Hi-PPO")
        return QueueRecipe(LEARNED, keys, "easy", f"order of a network, {made}, backfill easy", source)


def save(path: Path, order: LearnedOrder) -> str:
    """Writes a learned order in place of what was there, and returns its digest.

    Raises:
        StorageError: the disk refused.
    """
    content = {
        "schema": SCHEMA,
        "features": list(FEATURES),
        "widths": list(order.scorer.widths),
        "weights": order.scorer.weights.tolist(),
        "provenance": order.provenance,
    }
    digest = _digest(content)
    durable.write_output(
        path, orjson.dumps({**content, "sha256": digest}, option=orjson.OPT_INDENT_2) + b"\n"
    )
    return digest


def load(path: Path) -> LearnedOrder:
    """Returns a learned order from its file.

    Raises:
        NotFoundError: no such file. DamageError: it was changed. InputError: it is no learned order, or one
        of other features.
    """
    if not path.is_file():
        raise NotFoundError(f"{path} does not exist: `twin train --queue LOG --out {path}` makes one")
    try:
        content = safe_json.parsed(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, ValueError) as error:
        raise InputError(
            f"{path}: not a learned order: {clipped(str(error), SENTENCE)}; take one of `twin train --queue`"
        ) from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        found = content.get("schema") if isinstance(content, dict) else None
        raise InputError(
            f"{path}: schema {shown(found)}, expected {SCHEMA!r}; take a file of `twin train --queue`"
        )
    said = content.pop("sha256", None)
    if said != (found := _digest(content)):
        raise DamageError(
            f"{path}: damaged: its digest is {found[:16]}..., it says {shown(said)}; train again"
        )
    features, provenance = content.get("features"), content.get("provenance")
    if not isinstance(features, list) or not isinstance(provenance, dict):
        raise InputError(f"{path}: its features or its provenance are missing; train again")
    if features != list(FEATURES):
        raise InputError(
            f"{path}: a network of {len(features)} features; this version has the "
            f"{len(FEATURES)} {', '.join(FEATURES)}: train again"
        )
    return LearnedOrder(_scorer(path, content.get("widths"), content.get("weights")), provenance)


def _scorer(path: Path, widths: Any, weights: Any) -> JobScorer:
    """Returns the network of a file.

    Raises:
        InputError: its layers and weights do not fit.
    """
    fits = (
        isinstance(widths, list)
        and 2 <= len(widths) <= DEEPEST
        and all(isinstance(width, int) and 1 <= width <= WIDEST for width in widths)
        and (widths[0], widths[-1]) == (len(FEATURES), 1)
        and isinstance(weights, list)
        and len(weights) == weights_in(tuple(widths))
        and all(isinstance(one, int | float) and math.isfinite(one) for one in weights)
    )
    if not fits:
        raise InputError(
            f"{path}: layers {shown(widths)} do not fit its weights, or {len(FEATURES)} features; train again"
        )
    return JobScorer(tuple(widths), np.array(weights, np.float64))


def _digest(content: dict[str, Any]) -> str:
    """Returns the SHA-256 of everything but the digest itself."""
    return hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()
