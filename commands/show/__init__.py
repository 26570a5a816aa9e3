"""Text output of the commands: results in, tables and lines on stdout out.

One module for each kind of result; `console.py` holds tables and progress bars. Nothing is computed here.
Start at `console.py`.
"""
