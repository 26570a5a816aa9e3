"""Published data sets: catalogue, verified download, synthetic stand-ins.

Names of sets come in; files with the SHA-256 of the catalogue go out into the store's folder `fetched`, and
the synthetic traces, made from measured statistics, into any folder. Start at `catalogue.py`.
"""
