"""A calibration: constants fitted to a lake, kept in its store, used in place of the built-in ones.

`<store>/calibrations/<digest>.json` is never overwritten; `<store>/calibration.json` copies the one in use. A
file is read only if its content has the digest in its name; the copy must be one of them.
"""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ingest.core import durable, integrity, safe_json
from ingest.core.errors import DamageError, ExistsError, NotFoundError
from ingest.core.terminal import SENTENCE, clipped, shown
from twin.calibration import run_factors
from twin.calibration.least_squares import Fit
from twin.calibration.profiled_layers import label_of
from twin.calibration.run_factors import RunFactors, free
from twin.core.domain import Domain, GpuType
from twin.core.plan import Recompute
from twin.core.switches import PLAIN, TensorMode
from twin.core.transformer import Transformer
from twin.costs import energy
from twin.costs.gpu_rates import Host, Rates, built_in_rates
from twin.costs.layer_compute import LayerTimes, layer_times

SCHEMA = "twin.calibration/1"
FOLDER = "calibrations"
IN_USE = "calibration.json"
WAIT_ACTIVITY = 0.15
"""SM activity of a GPU that waits in a collective: some 20 of 132 SMs."""

Blocks = Mapping[str, Mapping[str, list[list[float]]]]
"""GPU model -> label of a block -> [micro-batch, forward seconds, backward seconds]."""


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """Fits by GPU model and name, and measured blocks; made from the lake `lake_digest`. `runs`: factors that
    measured runs showed on top of them."""

    lake_digest: str
    gpus: Mapping[str, Mapping[str, Fit]]
    blocks: Blocks
    runs: RunFactors | None = None

    def to_json(self) -> dict[str, Any]:
        """Schema `twin.calibration/1`."""
        fits = {
            kind: {name: fit.to_json() for name, fit in found.items()} for kind, found in self.gpus.items()
        }
        body = {"schema": SCHEMA, "lake_digest": self.lake_digest, "gpus": fits, "blocks": self.blocks}
        return body if self.runs is None else body | {"runs": self.runs.to_json()}

    @property
    def digest(self) -> str:
        """SHA-256 of the content."""
        return hashlib.sha256(self._bytes()).hexdigest()

    def _bytes(self) -> bytes:
        return (json.dumps(self.to_json(), sort_keys=True, allow_nan=False) + "\n").encode()

    def save(self, store: Path) -> Path:
        """Write the calibration under its digest and make it the one in use."""
        path = store / FOLDER / f"{self.digest}.json"
        with suppress(ExistsError):  # the same content under the same name
            durable.put(path, self._bytes())
        durable.replace(store / IN_USE, self._bytes())
        return path

    def __call__(
        self, model: Transformer, domain: Domain, tp: int, micro_batch: int, recompute: Recompute,
        *, mode: TensorMode = PLAIN,
    ) -> LayerTimes:  # fmt: skip
        """Layer times: a measured block where there is one, else the model with fitted rates; with factors
        of runs their part without collectives multiplied.

        A block counts as measured for its own shape, tp 1, half precision and fused attention, and between
        the smallest and the largest micro-batch of the profile.
        """
        plan = (tp, micro_batch, recompute, mode)
        times = self._unscaled(model, domain, *plan)
        if self.runs is None:
            return times
        return self.runs.layers(times, self._unscaled(model, free(domain), *plan), domain.gpu.name)

    def _unscaled(
        self, model: Transformer, domain: Domain, tp: int, micro_batch: int, recompute: Recompute,
        mode: TensorMode,
    ) -> LayerTimes:  # fmt: skip
        fitted = self.gpus.get(domain.gpu.name, {})
        times = layer_times(model, domain, tp, micro_batch, recompute, rates_from(domain.gpu, fitted), mode)
        block = self._measured(model, domain.gpu, tp, micro_batch) if mode.context_parallel == 1 else None
        if block is None:
            return times
        forward, backward = times.forward_s.copy(), times.backward_s.copy()
        forward[1:-1] = block[0]
        backward[1:-1] = block[1] + (block[0] if recompute == "full" else 0.0)
        return LayerTimes(forward, backward)

    def _measured(
        self, model: Transformer, device: GpuType, tp: int, micro_batch: int
    ) -> tuple[float, float] | None:
        rows = self.blocks.get(device.name, {}).get(label_of(model))
        if (
            not rows
            or tp != 1
            or model.experts is not None
            or model.adapters is not None
            or device.limited
            or model.attention != "flash"
            or model.dtype not in ("bf16", "fp16")
        ):
            return None
        sizes, forward, backward = np.array(rows).T
        if not sizes[0] <= micro_batch <= sizes[-1]:
            return None
        return float(np.interp(micro_batch, sizes, forward)), float(np.interp(micro_batch, sizes, backward))

    def site(self, domain: Domain, keep_links: bool = False) -> Domain:
        """`domain` with the fitted links inside its nodes and the fitted power.

        The network between nodes belongs to a site, not to a GPU model: its fit is printed and not used.
        `keep_links`: the speed inside nodes is given by the user.
        """
        fitted = self.gpus.get(domain.gpu.name, {})
        changed: dict[str, Any] = {}
        fit = fitted.get("intra-node all-reduce")
        if fit is not None and fit.better and not keep_links:
            changed["intra_node_bps"] = fit.values["bandwidth_bps"]
            changed["intra_node_latency_s"] = fit.values["alpha_s"]
        if "power" in fitted:
            changed["gpu"] = _powered(domain.gpu, fitted["power"])
        domain = replace(domain, **changed)
        return domain if self.runs is None else self.runs.site(domain)


def _powered(device: GpuType, fit: Fit) -> GpuType:
    """GPU whose busy and waiting power (`twin.costs.energy`) are those of the fitted curve."""
    values = fit.values
    busy = values["idle_w"] + values["slope_w"] * values["busy_activity"]
    wait = values["idle_w"] + values["slope_w"] * WAIT_ACTIVITY
    span = (busy - wait) / (energy.BUSY_FRACTION - energy.WAIT_FRACTION)
    idle = wait - energy.WAIT_FRACTION * span
    return replace(device, idle_w=idle, peak_w=idle + span)


def rates_from(device: GpuType, fitted: Mapping[str, Fit]) -> Rates:
    """Built-in rates, replaced where a fit is better."""
    rates = built_in_rates(device)
    fitted = {name: fit for name, fit in fitted.items() if fit.better}
    if "product" in fitted:
        values = fitted["product"].values
        rates = replace(rates, matmul=min(values["efficiency"], 1.0), start_s=values["start_s"])
    if "fp8" in fitted:
        rates = replace(rates, fp8=min(fitted["fp8"].values["efficiency"], 1.0))
    if {"attention forward", "attention backward"} <= fitted.keys():
        both = [fitted[f"attention {way}"].values["efficiency"] for way in ("forward", "backward")]
        rates = replace(rates, flash=(min(both[0], 1.0), min(both[1], 1.0)))
    floors = [fitted.get(f"host {way}") for way in ("forward", "backward")]
    if floors[0] is not None and floors[1] is not None:
        host = Host(floors[0].values["floor_s"], floors[1].values["floor_s"], rates.host.collective_s)
        rates = replace(rates, host=host)
    return rates


def load(store: Path) -> Calibration | None:
    """Calibration in use in `store`, None without one.

    Raises:
        DamageError: it is missing or not what was written.
    """
    path, folder = store / IN_USE, store / FOLDER
    data = integrity.read_optional(path)
    if data is None:
        if any(folder.glob("*.json")):
            raise DamageError(
                f"{path}: missing, though {folder} holds calibrations; run `twin calibrate` again, or delete "
                f"{folder} for the built-in constants"
            )
        return None
    named = folder / f"{hashlib.sha256(data).hexdigest()}.json"
    if not named.is_file():
        raise DamageError(
            f"{path}: its digest is not one of those in {folder} (no {named.name}): one of the files was "
            "changed or deleted; copy the right one here, or run `twin calibrate` again"
        )
    return _parsed(path, data)


def find(store: Path, which: str) -> Calibration:
    """Calibration of `store` by its digest, the beginning of that, or `latest`.

    Raises:
        NotFoundError: there is none, or more than one. DamageError: it is not what was written.
    """
    if which == "latest":
        newest = load(store)
        if newest is None:
            raise NotFoundError(f"{store} holds no calibration: run `twin calibrate`, or drop `calibration`")
        return newest
    paths = sorted((store / "calibrations").glob("*.json"))
    found = [path for path in paths if which and path.stem.startswith(which)]
    if len(found) != 1:
        known = ", ".join(path.stem[:12] for path in paths) or "none"
        raise NotFoundError(
            f"{len(found) or 'no'} calibrations of {store} begin with {shown(which)}; there are: {known} "
            "(`twin calibrate` makes one, `latest` takes the newest)"
        )
    return read_named(found[0])


def read_named(path: Path) -> Calibration:
    """Returns the calibration in a file that is named by its digest.

    Raises:
        NotFoundError: there is no such file. DamageError: its content is not the one that its name says.
    """
    data = integrity.read_optional(path)
    if data is None:
        raise NotFoundError(f"{path}: there is no such calibration; run `twin calibrate`")
    found = hashlib.sha256(data).hexdigest()
    if found != path.stem:
        raise DamageError(
            f"{path}: its digest is {found[:12]}..., not the one in its name: it was changed; restore it, or "
            "delete it and run `twin calibrate` again"
        )
    return _parsed(path, data)


def _parsed(path: Path, data: bytes) -> Calibration:
    try:
        body = safe_json.parsed(data)
        if body.get("schema") != SCHEMA:
            raise ValueError(f"its schema is {shown(body.get('schema'))}, not {SCHEMA}")
        gpus = {
            kind: {name: Fit(**fit) for name, fit in found.items()} for kind, found in body["gpus"].items()
        }
        runs = run_factors.from_json(body["runs"]) if "runs" in body else None
        return Calibration(body["lake_digest"], gpus, body["blocks"], runs)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamageError(
            f"{path}: not a calibration ({clipped(str(error), SENTENCE)}); run `twin calibrate` again"
        ) from error
