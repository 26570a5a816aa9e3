"""Example plugin of `twin`: `reader.py` reads the files of a fictitious speed test, `policy.py` is a
policy."""
