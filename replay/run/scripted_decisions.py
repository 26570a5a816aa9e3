"""Sources of decisions, and the one that replays recorded decisions before a policy takes over."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

from ingest.core.errors import DamageError, InfeasibleError
from policy.core.protocol import Decision, Policy
from replay.store.decision_codec import decision_from_json, digest, view_to_json
from twin.core.view import View

Json = dict[str, Any]


class DecisionSource(Protocol):
    """Decides at triggers; `DecisionGuard` is one."""

    def decide(self, number: int, view: View) -> tuple[Decision, Json]:
        """Returns decision `number` for `view` and its wall-clock figures (seconds)."""
        ...


class Scripted:
    """Returns the recorded decisions of `script` by number, then those of `after`.

    The policy is called with every view from the first on, so that it takes over in the state that it would
    have reached in the run: its own filters, tables, and records of links that have died since.
    """

    def __init__(self, script: Mapping[int, Json], policy: Policy, after: DecisionSource) -> None:
        self._script = script
        self._policy = policy
        self._after = after

    def decide(self, number: int, view: View) -> tuple[Decision, Json]:
        """Returns decision `number`: the recorded one, or the policy's.

        Raises:
            DamageError: a recorded decision was made of another view, so this is not the same world.
        """
        recorded = self._script.get(number)
        if recorded is None:
            return self._after.decide(number, view)
        if digest(view_to_json(view)) != recorded["observation_digest"]:
            raise DamageError(
                f"decision {number} was made of another view than this world gives: the code or the traces "
                "have changed since the run was made; run it again first"
            )
        with suppress(InfeasibleError):  # its own decision is not used yet
            self._policy.decide(view)
        return decision_from_json(recorded), {}
