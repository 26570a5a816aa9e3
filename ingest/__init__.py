"""Formats to canonical tables to a Parquet lake; also what every layer shares: errors, units, durable files."""
