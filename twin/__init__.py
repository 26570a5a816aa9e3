"""A digital twin of LLM training over data centres: `import twin` is the Python front door.

    import twin
    store = twin.Store(".twin")                     # lake, runs and checkpoints of one folder
    store.ingest("measurements/")                   # files -> lake; without a path the traces that ship
    run = twin.replay("mpc", "tri-7b", store=store) # a logged run; a policy object works as well
    store.sql("select policy, tokens from runs").pl()

The names below are loaded on first use, so that `import twin` costs nothing; docs/reference/api.md describes
each. As a package, `twin` is the floor on which measurements become a simulated world and a cost model: start
with `world/world.py` and `estimation/estimator.py`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the one place where a lower floor names a higher one
    from ingest.core.errors import InfeasibleError, TwinError
    from ingest.core.resources import traces as shipped_traces
    from ingest.parsing.reader import Reader, Reject, RowBatch
    from ingest.parsing.row_builder import RowBuilder
    from ingest.parsing.source import Source
    from ingest.pipeline.ingest_report import IngestReport
    from ingest.readers.registry import register as register_reader
    from policy.core.protocol import Candidate, Context, Decision, Policy
    from policy.core.registry import register as register_policy
    from replay.api.learning import environment, train
    from replay.api.logged_run import Run
    from replay.api.planning import batch, estimate, plan
    from replay.api.query_result import QueryResult
    from replay.api.running import compare, replay
    from replay.api.store import Store
    from replay.bench.comparison import Comparison
    from replay.planning.answer import PlanAnswer
    from replay.planning.figures import PlanFigures
    from replay.planning.turning_points import TurningPoint
    from twin.cases.answer import Answer
    from twin.core.domain import Cluster, LinkState
    from twin.core.plan import Plan
    from twin.core.view import Forecast, View
    from twin.goodput.batch_choice import BatchAnswer
    from twin.scenario.prepare import load as load_scenario
    from twin.settings.scenario_file import Scenario

_WHERE = {
    "Answer": "twin.cases.answer",
    "BatchAnswer": "twin.goodput.batch_choice",
    "Candidate": "policy.core.protocol",
    "Cluster": "twin.core.domain",
    "Comparison": "replay.bench.comparison",
    "Context": "policy.core.protocol",
    "Decision": "policy.core.protocol",
    "Forecast": "twin.core.view",
    "InfeasibleError": "ingest.core.errors",
    "IngestReport": "ingest.pipeline.ingest_report",
    "LinkState": "twin.core.domain",
    "Plan": "twin.core.plan",
    "PlanAnswer": "replay.planning.answer",
    "PlanFigures": "replay.planning.figures",
    "Policy": "policy.core.protocol",
    "QueryResult": "replay.api.query_result",
    "Reader": "ingest.parsing.reader",
    "Reject": "ingest.parsing.reader",
    "RowBatch": "ingest.parsing.reader",
    "RowBuilder": "ingest.parsing.row_builder",
    "Run": "replay.api.logged_run",
    "Scenario": "twin.settings.scenario_file",
    "Source": "ingest.parsing.source",
    "Store": "replay.api.store",
    "TurningPoint": "replay.planning.turning_points",
    "TwinError": "ingest.core.errors",
    "View": "twin.core.view",
    "batch": "replay.api.planning",
    "compare": "replay.api.running",
    "environment": "replay.api.learning",
    "estimate": "replay.api.planning",
    "load_scenario": "twin.scenario.prepare:load",
    "plan": "replay.api.planning",
    "register_policy": "policy.core.registry:register",
    "register_reader": "ingest.readers.registry:register",
    "replay": "replay.api.running",
    "shipped_traces": "ingest.core.resources:traces",
    "train": "replay.api.learning",
}
"""Module of each public name, with the name there where it differs."""

__all__ = [
    "Answer",
    "BatchAnswer",
    "Candidate",
    "Cluster",
    "Comparison",
    "Context",
    "Decision",
    "Forecast",
    "InfeasibleError",
    "IngestReport",
    "LinkState",
    "Plan",
    "PlanAnswer",
    "PlanFigures",
    "Policy",
    "QueryResult",
    "Reader",
    "Reject",
    "RowBatch",
    "RowBuilder",
    "Run",
    "Scenario",
    "Source",
    "Store",
    "TurningPoint",
    "TwinError",
    "View",
    "batch",
    "compare",
    "environment",
    "estimate",
    "load_scenario",
    "plan",
    "register_policy",
    "register_reader",
    "replay",
    "shipped_traces",
    "train",
]


def __getattr__(name: str) -> Any:
    """The public name `name`, imported now."""
    if name not in _WHERE:
        raise AttributeError(f"module 'twin' has no attribute {name!r}")
    from importlib import import_module

    module, _, attribute = _WHERE[name].partition(":")
    found = getattr(import_module(module), attribute or name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """The public names."""
    return __all__
