"""ingest/readers/telemetry: say what comes in, what goes out, where to start reading."""
