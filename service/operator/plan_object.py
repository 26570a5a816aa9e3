"""A TrainingPlan as the API server holds it: what is asked for, and the state that was reached."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from ingest.core.errors import InputError
from ingest.core.terminal import clipped
from service.operator import plan_spec

Json = dict[str, Any]
Follow = Literal["never", "lost", "better"]
PLAN_FIELDS = (
    "shares", "dataParallel", "microBatch", "microBatches", "schedule", "extraWarmup", "chunks", "recompute",
    "zero", "routes",
)  # fmt: skip
"""Fields of the specification that are the plan itself."""
ACCEPTED = "Accepted"
"""Type of the condition that says whether the specification is a plan that can be computed."""
MAX_MESSAGE = 1_000
"""Characters of a message in the status."""
NAME = 28
"""Characters of an object's name that its children carry; a longer one is cut and gets a digest."""


@dataclass(frozen=True, slots=True)
class PlanState:
    """State of an object as the operator decided it: its status, and all that is known after a restart.

    `revision` counts the plans; children carry it in their names. `plan` is that of `plan_to_json`, None:
    none fits the nodes. `gpus` counts the GPUs of `plan` by domain. `written` is the digest of the plan in
    the specification, `generation` the one that was last answered. `fault`: why the specification is not
    accepted, as the reason of its condition (empty: it is), which is so since `since` (RFC 3339).
    """

    revision: int
    phase: str
    message: str
    generation: int
    model: str | None
    global_batch: int | None
    written: str
    plan: Json | None = None
    gpus: Mapping[str, int] | None = None
    iteration_s: float | None = None
    fault: str = ""
    since: str = field(default="", compare=False)

    def to_status(self) -> Json:
        """Returns the status; what is None is left out."""
        found = {_camel(name): value for name, value in asdict(self).items() if value is not None}
        fault, since = found.pop("fault"), found.pop("since")
        condition = {
            "type": ACCEPTED, "status": "False" if fault else "True", "reason": fault or ACCEPTED,
            "message": self.message if fault else "", "observedGeneration": self.generation,
            "lastTransitionTime": since or "1970-01-01T00:00:00Z",
        }  # fmt: skip
        return {
            "observedGeneration": found.pop("generation"), "planDigest": found.pop("written"), **found,
            "conditions": [condition],
        }  # fmt: skip

    @classmethod
    def of(cls, status: Json) -> "PlanState | None":
        """Returns the state of a status; None: the operator has not written it. Of one that cannot be read
        the revision alone is known."""
        if "revision" not in status:
            return None
        found = plan_spec.read_status(status)
        if found is None:
            return cls(plan_spec.known_revision(status), "Pending", "", 0, None, None, "")
        condition = next((one for one in found.conditions if one.get("type") == ACCEPTED), {})
        refused = condition.get("status") == "False"
        return cls(
            found.revision, found.phase, found.message, found.observed_generation, found.model,
            found.global_batch, found.plan_digest, found.plan, found.gpus, found.expected_iteration_seconds,
            str(condition.get("reason")) if refused else "", str(condition.get("lastTransitionTime", "")),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlanObject:
    """A TrainingPlan. `base` begins the names of its children; `spec` is its specification as it is."""

    namespace: str
    name: str
    uid: str
    generation: int
    deleting: bool
    spec: Json
    state: PlanState | None

    @classmethod
    def of(cls, body: Json) -> "PlanObject":
        """Returns the object of a body that the API server sends; its specification is not read yet.

        Raises:
            InputError: it has no name or identity.
        """
        head, spec, status = (_object(body.get(name)) for name in ("metadata", "spec", "status"))
        name, uid, generation = head.get("name"), head.get("uid"), head.get("generation", 1)
        if not (isinstance(name, str) and isinstance(uid, str) and isinstance(generation, int)):
            raise InputError("an object without name, uid or generation")
        namespace = str(head.get("namespace", "default"))
        deleting = "deletionTimestamp" in head
        return cls(namespace, name, uid, generation, deleting, spec, PlanState.of(status))

    def check(self) -> None:
        """Checks the specification, before anything is computed of it.

        Raises:
            InputError: it is none; the message names the field and what it may be.
        """
        plan_spec.checked_spec(self.spec, self.name)

    @property
    def base(self) -> str:
        """Begin of the children's names: the name, cut where it is long."""
        plain = re.sub("[^a-z0-9]+", "-", self.name)
        if len(plain) <= NAME and plain == self.name:
            return plain
        return f"{plain[: NAME - 7].rstrip('-')}-{hashlib.sha256(self.name.encode()).hexdigest()[:6]}"

    @property
    def follow(self) -> Follow:
        """Causes that may change the plan: none, lost GPUs, or those and a better plan."""
        found: Follow = self.spec.get("follow", "lost")
        return found

    @property
    def min_gain(self) -> float:
        """Part of an iteration that another plan has to save."""
        return float(self.spec.get("minGain", 0.05))

    @property
    def pause_s(self) -> float:
        """Seconds that a move costs: pods end, pods start, the checkpoint is read."""
        return float(self.spec.get("pauseSeconds", 120))

    @property
    def horizon_s(self) -> float:
        """Seconds over which a move has to pay for its pause."""
        return float(self.spec.get("horizonSeconds", 3600))

    @property
    def job(self) -> tuple[str, int]:
        """Model and batch: plans of different jobs are not compared."""
        return self.spec["model"], self.spec["globalBatch"]

    @property
    def written(self) -> str:
        """Digest of the plan in the specification."""
        text = json.dumps({name: self.spec.get(name) for name in PLAN_FIELDS}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def plan(self, domains: Sequence[str], **switches: Any) -> Json:
        """Returns the plan of the specification as `plan_to_json` writes it; `switches`: what it
        leaves to the job.

        Raises:
            InputError: it names a domain that `domains` has not.
        """
        spec = self.spec
        named = [share["domain"] for share in spec["shares"]] + [k for route in spec["routes"] for k in route]
        unknown = sorted(set(named) - set(domains))
        if unknown:
            raise InputError(f"{self.name}: no domain {', '.join(unknown)} in the scenario of the operator")
        shares = [
            {
                "domain": domains.index(share["domain"]), "layers": share["layers"],
                "tp": share["tensorParallel"], "pp": share["stages"], "gpus": share["gpus"],
            }
            for share in spec["shares"]
        ]  # fmt: skip
        return {
            "shares": shares, "dp": spec["dataParallel"], "micro_batch": spec["microBatch"],
            "micro_batches": spec["microBatches"], "schedule": spec["schedule"],
            "extra_warmup": spec["extraWarmup"], "chunks": spec["chunks"], "recompute": spec["recompute"],
            "zero": spec["zero"],
            "routes": [[domains.index(name) for name in route] for route in spec["routes"]],
            **switches,
        }  # fmt: skip


def message(why: str) -> str:
    """Returns a message as the status has it: one line of bounded length."""
    return clipped(" ".join(why.split()), MAX_MESSAGE)


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _camel(name: str) -> str:
    if name == "iteration_s":
        return "expectedIterationSeconds"
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)
