"""Objects of an S3-compatible store: the client, conditional writes, pointers, working copies.

Comes in: an address `s3://BUCKET/PREFIX`, bytes by name. Goes out: bytes that are stored once and never
overwritten, pointers that one of two writers replaces, and errors of ours. `client.py` makes the client,
`working_copy.py` is the folder that commands work in. Start at `bucket_prefix.py`. On top of these modules
are lake, log and checkpoints of a store in a bucket.
"""
