"""Candidates for an answer: the search over the record, and the plans of planners for its typical links."""

from collections.abc import Mapping, Sequence

from ingest.core.compiled import kept
from ingest.core.errors import InfeasibleError
from ingest.core.progress import SILENT, Progress
from policy.control.best_relay_times import assign_relays
from policy.control.knobs import default_knobs
from policy.control.long_run import candidates
from policy.core import registry
from policy.search.batch_scoring import _fill
from policy.search.bottleneck_split import _fill_splits
from replay.planning.record import Record, view_of
from twin.core.plan import Plan
from twin.pipeline.kernel import _warmed

SEARCH = "search"
EQUAL, SINGLE = "static", "single"
"""Planners whose plans stand beside every answer: equal cuts, and the best plan in one domain."""
QUICK = (EQUAL, SINGLE, "megatron", "atlas", "crosspipe", "dtfm", "dtfm-native", "zero", "mast")
"""Planners that answer in a fraction of a second for any number of domains. The others (`sailor`, `alpa`,
`hyperion`, `diloco`) take seconds to minutes at 60 domains; `--beside` asks for them."""


def compiled() -> bool:
    """Returns True where the kernels that take longest to compile for an answer are kept on the disk."""
    return all(kept(kernel) for kernel in (_fill, _fill_splits, _warmed, assign_relays))


def planned(record: Record, names: Sequence[str], progress: Progress = SILENT) -> dict[str, Plan | str]:
    """Returns the plan of each planner for the typical links, default knobs; the reason where it has none."""
    view, found = view_of(record, record.typical), dict[str, Plan | str]()
    progress.start(len(names), "planners", "planners")
    for name in names:
        progress.advance(1, name)
        try:
            registry.check_schedule(name, record.estimator.job.schedule)
            policy = registry.create(name)
            policy.reset(record.context())
            plan = policy.decide(view).plan
        except InfeasibleError as error:
            found[name] = str(error)
            continue
        assert plan is not None, "a first decision has a plan"
        found[name] = default_knobs(record.estimator.job, plan)
    return found


def origins(record: Record, of_planners: Mapping[str, Plan | str]) -> dict[Plan, str]:
    """Returns every candidate with the name of what found it: the planners first, then the search for the
    typical links of the record, direct and over relays."""
    found: dict[Plan, str] = {}
    for name, plan in of_planners.items():
        if isinstance(plan, Plan):
            found.setdefault(plan, name)
    searched = candidates(record.estimator, record.states, record.gpus, parts=0, relayed=record.relayed)
    for plan in searched:
        found.setdefault(default_knobs(record.estimator.job, plan), SEARCH)
    return found
