"""Which nodes and GPUs a job gets: nodes of several GPU models, shares of a GPU, CPU and memory.

In: a `NodeCluster` (`cluster.py`), what jobs ask for (`demands.py`), a `PlacementRecipe` (`recipe.py`). Out:
the GPUs of a job, in the compiled state of `nodes.py`. `choosing.py` places a job, alone on a node or as a
gang over several; `scores.py` says which node is best; `fragmentation.py` measures what is left over;
`bookings.py` keeps places for later.
`plain.py` is the same in plain Python, which tests hold the compiled code equal to. Start with
`cluster.py`."""
