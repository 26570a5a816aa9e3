"""Max-min fair shares of the time on GPUs of several models, by a linear program.

Narayanan et al. (Gavel, OSDI 2020), section 4.1: X[m, j] is the share of time that job m runs on model j, its
effective throughput sum over j of speed[m, j] X[m, j]. The least of scale[m] x effective throughput over that
of an equal share (time on every model by its number of GPUs) is made as large as it can be, with sum over j
of X[m, j] <= 1 and sum over m of scale[m] X[m, j] <= GPUs of j.
"""

import numpy as np

from twin.queue.jobs import Float, Int

SUM_WEIGHT = 1e-4
"""Weight of the mean of all normalised throughputs beside the least one."""


def fair_shares(speed: Float, scale: Int, gpus: Int) -> Float:
    """Returns X (jobs, models) for speeds (jobs, models), 0 where a job cannot run.

    `scale`: GPUs that each job asks for (jobs,); `gpus`: GPUs of each model (models,).
    Many X have the same least throughput; of them one of the largest sum is taken, by a small weight, which
    the paper leaves open. A job that can run nowhere gets nothing and does not count.
    """
    from scipy.optimize import linprog  # brings scipy, needed here only

    shares = np.zeros(speed.shape)
    usable = (speed > 0) & (scale[:, None] <= gpus)
    rows = np.flatnonzero(usable.any(axis=1))
    if not len(rows):
        return shares
    jobs, models = len(rows), len(gpus)
    counted = np.where(usable[rows], speed[rows], 0.0)
    worth = counted * scale[rows, None] / (counted @ (gpus / gpus.sum()))[:, None]
    cost = np.append(-SUM_WEIGHT * worth.ravel() / jobs, -1.0)
    least, whole, used = (np.zeros((many, jobs * models + 1)) for many in (jobs, jobs, models))
    for row in range(jobs):
        own = slice(row * models, (row + 1) * models)
        least[row, own], least[row, -1] = -worth[row], 1.0
        whole[row, own] = 1.0
    for model in range(models):
        used[model, model:-1:models] = scale[rows]
    bounds = [(0.0, 1.0 if one else 0.0) for one in usable[rows].ravel()] + [(0.0, None)]
    found = linprog(
        cost, A_ub=np.vstack((least, whole, used)),
        b_ub=np.concatenate((np.zeros(jobs), np.ones(jobs), gpus)), bounds=bounds, method="highs",
    )  # fmt: skip
    assert found.x is not None, found.message
    shares[rows] = np.clip(found.x[:-1].reshape(jobs, models), 0.0, 1.0)
    return shares
