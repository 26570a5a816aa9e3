"""Optional extras of the installation: whether one is there, and the line that installs it."""

from importlib.util import find_spec

from ingest.core import resources
from ingest.core.errors import UsageError

NAME = "twin"
MODULE = {
    "ray": "ray", "tensorboard": "tensorboard", "sign": "cryptography", "serve": "fastapi", "s3": "obstore",
    "mlflow": "mlflow", "wandb": "wandb", "operator": "kopf",
}  # fmt: skip
"""A module of each extra that a command may need."""


def pip_line(what: str) -> str:
    """Returns the line that installs something, under the pinned versions where they are at hand."""
    pinned = "-c constraints.txt " if (resources.root() / "constraints.txt").is_file() else ""
    return f"python -m pip install {pinned}{what}"


def line_of(extra: str) -> str:
    """Returns the line that installs an extra: in a checkout there, else beside the installed package."""
    editable = (resources.root() / "pyproject.toml").is_file()
    return pip_line(f"-e '.[{extra}]'" if editable else f"'{NAME}[{extra}]'")


def missing(extra: str, what: str) -> UsageError:
    """Returns the error that `what` needs an extra which is not installed."""
    return UsageError(f"{what} needs the extra {extra!r}: {line_of(extra)}")


def require(extra: str, what: str) -> None:
    """Checks that an extra is installed, without importing it: before work that would be lost otherwise.

    Raises:
        UsageError: it is not.
    """
    if find_spec(MODULE[extra]) is None:
        raise missing(extra, what)
