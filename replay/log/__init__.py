"""replay/log: say what comes in, what goes out, where to start reading."""
