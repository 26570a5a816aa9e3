"""The accounts of a run, added up from its facts."""

from replay.audit.conservation import Accounts
from replay.log.events import Event
from twin.core.facts import Fact
from twin.scenario.prepare import PreparedScenario


def problems(setup: PreparedScenario, facts: list[Fact]) -> list[str]:
    """What an auditor of the events would find."""
    started = Event(0, 0, "run_started", 1, "", {"scenario": setup.scenario.model_dump(mode="json")})
    events = [Event(n + 1, f.sim_ns, f.type, 1, f.job, f.payload) for n, f in enumerate(facts)]
    return Accounts().check([started, *events])
