"""The rows of a query as Arrow, polars, pandas or Python values."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ingest.core.errors import UsageError

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True, slots=True, eq=False)
class QueryResult:
    """Rows of one SELECT; times are UTC with nanoseconds, units are in the column names."""

    arrow: pa.Table

    @property
    def columns(self) -> tuple[str, ...]:
        """Column names in order."""
        return tuple(self.arrow.column_names)

    def __len__(self) -> int:
        return int(self.arrow.num_rows)

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary a row."""
        return list(self.arrow.to_pylist())

    def pl(self) -> "polars.DataFrame":
        """A polars frame over the same memory."""
        import polars

        frame = polars.from_arrow(self.arrow)
        assert isinstance(frame, polars.DataFrame)
        return frame

    def df(self) -> Any:
        """A pandas frame; pandas is not installed with `twin`.

        Raises:
            UsageError: pandas is not installed.
        """
        try:
            import pandas  # type: ignore[import-untyped]  # noqa: F401
        except ImportError as error:
            raise UsageError(
                "pandas is not installed: `pip install pandas`, or take .pl() or .arrow"
            ) from error
        return self.arrow.to_pandas()
