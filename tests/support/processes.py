"""Environment of child processes that run the code of this checkout."""

import os
from pathlib import Path


def environment(repository: Path, store: Path, *more: Path) -> dict[str, str]:
    """The present one, with `more` folders and the repository on the path and `store` as the store."""
    path = os.pathsep.join(map(str, (*more, repository)))
    return {**os.environ, "PYTHONPATH": path, "TWIN_STORE": str(store)}
