"""The commands of `twin`, thin and by concern: each parses its words, makes one call and shows the result.

Words of the command line come in; calls into the floors below, text or JSON (`output.py`) and an exit code go
out. The module `cli` registers them, `show` draws results for a terminal. Start at `inspecting.py`.
"""
