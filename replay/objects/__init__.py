"""Objects of an S3-compatible store: the client, conditional writes, batches of a log, working copies.

Comes in: an address `s3://BUCKET/PREFIX`, bytes by name. Goes out: bytes that are stored once and never
overwritten, and errors of ours. `client.py` makes the client, `batch.py` is the form of an object of the log,
`working_copy.py` is the folder that commands work in. Start at `bucket_prefix.py`. The log on top of these
modules is one of the room `log`.
"""
