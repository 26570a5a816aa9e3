"""Decisions that stand already, and the policy that takes over after them."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

from ingest.core.errors import DamageError, InfeasibleError
from policy.core.protocol import Decision, Policy
from replay.store.decision_codec import decision_from_json, digest, view_to_json
from twin.core.view import View

Json = dict[str, Any]


class Answers(Protocol):
    """Answers triggers; a `Coordinator` is one."""

    def answer(self, number: int, view: View) -> tuple[Decision, Json]:
        """Decision `number` for `view`, and its wall-clock figures (seconds)."""
        ...


class Scripted:
    """Answers as it is written while it is written, then lets `after` answer.

    The policy sees every view from the first on, so that it takes over in the state that it would be in had
    it watched: filters of its own, tables, what it remembers of a link before it died.
    """

    def __init__(self, script: Mapping[int, Json], policy: Policy, after: Answers) -> None:
        self._script = script
        self._policy = policy
        self._after = after

    def answer(self, number: int, view: View) -> tuple[Decision, Json]:
        """Decision `number`: the written one, or the policy's.

        Raises:
            DamageError: a written decision was made of another view, so this is not the same world.
        """
        written = self._script.get(number)
        if written is None:
            return self._after.answer(number, view)
        if digest(view_to_json(view)) != written["observation_digest"]:
            raise DamageError(
                f"decision {number} was made of another view than this world gives: the code or the traces "
                "have changed since the run was made; run it again first"
            )
        with suppress(InfeasibleError):  # it does not answer yet: whether it could is not the question
            self._policy.decide(view)
        return decision_from_json(written), {}
