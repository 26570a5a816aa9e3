"""Modules that no command may load before it needs them."""

HEAVY = (
    "torch",
    "torch_geometric",
    "filterpy",
    "scipy",
    "numba",
    "duckdb",
    "pyarrow",
    "polars",
    "numpy",
    "rich",
)
