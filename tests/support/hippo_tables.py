"""Planning tables of small clusters and random walks over their legal plans."""

import numpy as np

from policy.hippo.tables.planning_tables import Codes, PlanningTables
from tests.support.worlds import toy_setup
from twin.scenario.prepare import PreparedScenario

MODELS = {
    "7b": {},
    "7b-zero0": {"job": {"global_batch": 32, "micro_batches": [1, 2], "zero": 0}},
    "7b-sp": {
        "job": {"global_batch": 32, "micro_batches": [1, 2], "zero": 1, "sequence_parallel": True},
    },
    "7b-cp": {
        "job": {"global_batch": 32, "micro_batches": [1, 2], "zero": 1, "context_parallel": 2},
    },
    "gpt2": {"model": "gpt2-1.5b"},  # tied: both ends exchange gradients
    "70b": {"model": "llama2-70b", "job": {"global_batch": 64, "micro_batches": [1, 2], "zero": 1}},
}


def setup(kind: str, gpus: int = 4) -> PreparedScenario:
    changes = dict(MODELS[kind])
    made = toy_setup(3)
    cluster = made.scenario.cluster.model_dump()
    cluster["domains"] = [{"name": f"d{k}", "gpus": g} for k, g in enumerate((gpus, gpus, 2 * gpus))]
    return toy_setup(3, cluster=cluster, **changes)


def walk(problem: PlanningTables, rng: np.random.Generator, plans: int) -> Codes:
    """Random legal plans by the masks alone."""
    k, masks = problem.k, problem.masks
    rows = []
    for _ in range(plans):
        knob = rng.choice(np.flatnonzero(problem.knob_mask), 1)
        used, left, behind, found = np.zeros((1, k), np.bool_), problem.n, 0, []
        while left:
            at = (knob, used, np.array([left]), np.array([behind]))
            d, layers = rng.permutation(np.argwhere(masks.steps(*at)[0]))[0] + (0, 1)
            legal = masks.choices(*at, np.array([d]), np.array([layers]))[0]
            q = rng.choice(np.flatnonzero(legal))
            used[0, d] = True
            left, behind = left - layers, behind + int(masks.space.pp[knob[0], problem.class_of[d], q])
            found.append((d, layers, q))
        row = np.full((3, k), -1, np.int64)
        row[1:] = 0
        row[:, : len(found)] = np.array(found[::-1]).T
        rows.append((knob[0], len(found), *row))
    columns = list(zip(*rows, strict=True))
    return Codes(np.array(columns[0]), np.array(columns[1]), *(np.stack(c) for c in columns[2:]))
