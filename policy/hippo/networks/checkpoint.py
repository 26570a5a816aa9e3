"""Checkpoint files, named by their SHA-256; loading executes nothing and refuses damaged files.

`hippo-<digest>.pt` holds the weights, the configuration they were trained with, what they were trained on
and, in a training state, optimisers and progress. Random generators are derived by name from (seed,
iteration), so the iteration number is their state.
"""

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from ingest.core import durable
from ingest.core.errors import InputError, UsageError
from ingest.core.terminal import SENTENCE, clipped, shown
from policy.hippo.networks import checkpoint_file
from policy.hippo.networks.checkpoint_file import ANOTHER, NAME, SCHEMA, digest, install, locate
from policy.hippo.networks.hippo_config import HiPpoConfig
from policy.hippo.networks.lower_agent import LowerAgent
from policy.hippo.networks.upper_agent import LAYER, UpperAgent
from policy.hippo.tables.observation import CHOICE, EDGE, GLOBAL, KNOB, NODE

__all__ = ["NAME", "Checkpoint", "build", "digest", "install", "load", "locate", "publish", "save"]


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Weights of both agents; `training` is the state to resume from, None in a published checkpoint."""

    config: HiPpoConfig
    upper: dict[str, Any]
    lower: dict[str, Any]
    provenance: dict[str, Any]  # code version, scenarios and trace digests, seed, score; JSON values
    training: dict[str, Any] | None = field(default=None)

    def agents(self) -> tuple[UpperAgent, LowerAgent]:
        """Returns the networks with these weights, in evaluation mode."""
        upper, lower = build(self.config)
        upper.load_state_dict(self.upper)
        lower.load_state_dict(self.lower)
        return upper.eval(), lower.eval()


def build(config: HiPpoConfig) -> tuple[UpperAgent, LowerAgent]:
    """Returns new networks, initialised by the configuration's seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return UpperAgent(config.gnn), LowerAgent()


def architecture(config: HiPpoConfig) -> dict[str, Any]:
    """Returns the sizes that weights depend on."""
    sizes = {"node": NODE, "edge": EDGE, "global": GLOBAL, "knob": KNOB, "layer": LAYER, "choice": CHOICE}
    gnn = config.gnn.model_dump(mode="json", exclude={"dense"})
    return {"gnn": gnn, "features": sizes}


def to_bytes(checkpoint: Checkpoint) -> bytes:
    """Returns the content of a checkpoint file; equal checkpoints give equal bytes."""
    header = {
        "schema": SCHEMA,
        "architecture": architecture(checkpoint.config),
        "config": checkpoint.config.model_dump(mode="json"),
        "provenance": checkpoint.provenance,
    }
    payload = {
        "header": json.dumps(header, sort_keys=True),
        "upper": dict(checkpoint.upper),
        "lower": dict(checkpoint.lower),
        "training": checkpoint.training,
    }
    stream = io.BytesIO()
    torch.save(payload, stream)
    return stream.getvalue()


def save(checkpoint: Checkpoint, folder: Path, digits: int = 64) -> Path:
    """Writes `checkpoint` into `folder` under its digest, unless it is there; returns its path."""
    data = to_bytes(checkpoint)
    path = folder / f"hippo-{hashlib.sha256(data).hexdigest()[:digits]}.pt"
    durable.put(path, data, idempotent=True)
    return path


def publish(checkpoint: Checkpoint, out: Path) -> Path:
    """Writes a checkpoint for use as `out/<digest>/hippo-<digest>.pt`."""
    data = to_bytes(checkpoint)
    name = hashlib.sha256(data).hexdigest()
    return save(checkpoint, out / name)


def code_version() -> str:
    """Returns the version of the code: SHA-256 (first 16 hex digits) over the paths and sources of
    `policy.hippo`.
    """
    state, package = hashlib.sha256(), Path(__file__).parents[1]
    for source in sorted(package.rglob("*.py")):
        state.update(source.relative_to(package).as_posix().encode() + source.read_bytes())
    return f"hippo-{state.hexdigest()[:16]}"


def load(path: Path, expect: HiPpoConfig | None = None) -> Checkpoint:
    """Reads a checkpoint after checking its digest and, if given, the architecture of `expect`.

    Raises:
        NotFoundError, InputError, DamageError: see `checkpoint_file`. InputError: not a Hi-PPO checkpoint.
        UsageError: another architecture.
    """
    payload, header = _content(path, checkpoint_file.verified(path)[1])
    try:
        config = HiPpoConfig.model_validate(header["config"])
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InputError(
            f"{path}: made by another version with other settings; train again: "
            f"{clipped('.'.join(map(str, first['loc'])))}: {clipped(first['msg'])}"
        ) from error
    for wanted, source in (
        (architecture(config), "this version reads other features; train again with `twin train`"),
        (
            expect and architecture(expect),
            "the configuration; train a new checkpoint, or use the configuration it was made with",
        ),
    ):
        if wanted and wanted != header["architecture"]:
            raise UsageError(
                f"{path}: made for another architecture: {_differences(header['architecture'], wanted)} "
                f"({source})"
            )
    found = Checkpoint(config, payload["upper"], payload["lower"], header["provenance"], payload["training"])
    upper, lower = build(config)
    _check_weights(path, upper.state_dict(), found.upper)
    _check_weights(path, lower.state_dict(), found.lower)
    return found


def _check_weights(path: Path, wanted: Mapping[str, Any], kept: Any) -> None:
    """Weights of a file have the names, shapes and types of those of the network.

    Raises:
        InputError: they have not.
    """
    shapes = {name: (weights.shape, weights.dtype) for name, weights in wanted.items()}
    if not isinstance(kept, Mapping) or shapes != {
        name: (getattr(weights, "shape", None), getattr(weights, "dtype", None))
        for name, weights in kept.items()
    }:
        raise InputError(f"{path}: its weights are not those of its settings; train again")


def _content(path: Path, data: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the payload and its header.

    Raises:
        InputError: not a checkpoint; unpickling arbitrary bytes can raise nearly any exception.
    """
    header = checkpoint_file.header(path, data)
    try:
        payload = torch.load(io.BytesIO(data), weights_only=True)
    except Exception as error:
        raise InputError(
            f"{path}: not a Hi-PPO checkpoint: {clipped(str(error), SENTENCE)}; {ANOTHER}"
        ) from error
    return payload, header


def _differences(have: dict[str, Any], want: dict[str, Any]) -> str:
    found = {part: kept if isinstance(kept := have.get(part), dict) else {} for part in want}
    return ", ".join(
        f"{part}.{key} is {shown(found[part].get(key))}, needed {value!r}"
        for part, values in want.items()
        for key, value in values.items()
        if found[part].get(key) != value
    )
