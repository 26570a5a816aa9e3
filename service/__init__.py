"""What a training job and a decision service say to each other.

Comes in: steps, sends, links and domains as a job measures them. Goes out: observations over HTTP or as lines
of JSON in a file, and to the job the plans that it is ordered to go to. Start at `hook.py`.
"""
