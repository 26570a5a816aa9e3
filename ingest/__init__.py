"""Formats to canonical tables to a Parquet lake; and what all layers share: errors, units, durable files."""
