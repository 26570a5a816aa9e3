"""One file per format; `ingest.registry` lists them."""
