"""Processes for tests that kill, limit or race them: forked from one that has imported what they need.

A process of tests has one such server, and the test that needs it first starts it: so it imports what all of
them need, once, and none of those that are forked imports anything.
"""

import multiprocessing

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        *("pytest", "pyarrow.parquet", "obstore.store"),
        *("policy.search.plan_search", "replay.sql.query", "service.api.app", "service.api.server"),
        *("tests.support.bucket_trials", "tests.support.merge_trials", "tests.support.serving"),
    ]
)
