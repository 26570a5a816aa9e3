"""Progress of long work; the command line draws it, tests and library users may ignore it."""

from typing import Protocol


class Progress(Protocol):
    """Receives the total of a task once, then steps."""

    def start(self, total: int | None, what: str, unit: str = "") -> None:
        """A task of `total` steps begins (None: the total is not known); `unit`: what a step is, in plural
        (`files`; `B`: a byte). Without one only the share that is done means something."""
        ...

    def advance(self, steps: int = 1, note: str = "") -> None:
        """`steps` more are done; `note` says what is in hand."""
        ...


class Silent:
    """Progress for nobody."""

    def start(self, total: int | None, what: str, unit: str = "") -> None:
        """Say nothing."""

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Say nothing."""


SILENT: Progress = Silent()
