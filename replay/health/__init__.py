"""The health of an installation: Python, packages, torch, compiled kernels, and the store.

Comes in: a store. Goes out: checks, each with what was found and what to do. `check.py` is one of them;
`packages.py` holds versions against requirements, `installation.py` looks at interpreter and torch,
`stored_files.py` at the store, `kernels.py` at compiled code, which it can also make. Start at
`diagnosis.py`.
"""
