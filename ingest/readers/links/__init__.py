"""ingest/readers/links: say what comes in, what goes out, where to start reading."""
