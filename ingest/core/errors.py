"""Every error a user can meet.

TwinError                 exit code 1: a handled failure
├── UsageError            2: the command or a configuration is wrong
├── InputError            1: a file cannot be read as what it claims to be
├── NotFoundError         1: a data set, run, checkpoint or scenario is not in the store
├── InfeasibleError       1: no plan fits the model into the cluster
├── StorageError          1: the disk refused to keep a file
├── ExistsError           1: a file or run of that name is there already
├── DamageError           3: a stored file is not what was written (audit failed)
└── LockedError           4: another process writes here

A message says what is wrong, where (`file:row column`) and what to do next. Its words may change. The code of
an error does not: `area.reason`, such as `queue.conflict`. It is in `--json`, in answers of the service and
in tests. Where nothing tells an error apart from others of its class, it keeps the code of the class.
"""


class TwinError(Exception):
    """A failure with a message for the user: what, where, and the way out."""

    exit_code = 1
    code = "failure"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class UsageError(TwinError):
    """The command line or a configuration file is wrong."""

    exit_code = 2
    code = "usage"


class InputError(TwinError):
    """A file cannot be read as what it claims to be."""

    code = "input"


class NotFoundError(TwinError):
    """The store lacks what was asked for."""

    code = "not_found"


class InfeasibleError(TwinError):
    """No plan fits the model into the cluster."""

    code = "infeasible"


class StorageError(TwinError):
    """The disk refused (full, read-only, broken); what was committed before still stands."""

    code = "storage"


class ExistsError(TwinError):
    """The name is taken, and what is stored is never overwritten."""

    code = "exists"


class DamageError(TwinError):
    """A stored file is missing, changed or out of place."""

    exit_code = 3
    code = "damage"


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in work that can go on: says which command does it. No failure, so no `TwinError`."""


class LockedError(TwinError):
    """Another process is writing to the same place."""

    exit_code = 4
    code = "locked"
