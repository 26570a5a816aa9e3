"""All checks of an installation, in the order in which one would mend them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingest.core.progress import SILENT, Progress
from replay.health import installation, packages
from replay.health.check import Check


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The checks of an installation; `compiled`: kernels made ready for it, None where nobody asked."""

    checks: tuple[Check, ...]
    compiled: int | None = None

    @property
    def ok(self) -> bool:
        """True if nothing is broken."""
        return all(check.state != "broken" for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """The object of `twin doctor --json`."""
        return {
            "schema": "twin.doctor/1",
            "ok": self.ok,
            "checks": [check.to_json() for check in self.checks],
            "compiled": self.compiled,
        }


def diagnose(store: Path, *, compile_kernels: bool = False, progress: Progress = SILENT) -> Diagnosis:
    """Checks everything, up to what cannot work; with `compile_kernels` those of a first decision are
    compiled first.

    Raises:
        TwinError: the shipped scenario, which is played to compile, cannot be played.
    """
    found = [installation.python(), *packages.checks(), installation.torch(), *installation.shipped()]
    if any(check.state == "broken" for check in found):
        return Diagnosis(tuple(found))
    from replay.health import kernels, stored_files  # of what may have been missing

    compiled = kernels.compile_first(progress) if compile_kernels else None
    found += [kernels.check(), stored_files.weights(store), *stored_files.store_health(store, progress)]
    return Diagnosis(tuple(found), compiled)
