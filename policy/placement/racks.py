"""Racks: a gang that is larger than a node lies in one rack, whose nodes are one switch apart.

`rack` waits until a rack has room, as Slurm's `--switches=1` without a time limit; a job larger than any rack
does not wait for one. `rack-first` takes one rack if one has room now and does not wait, as Slurm's topology
plug-in does without that option, and as YARN's scheduler relaxes locality (Jeon et al., ATC 2019). Both take
the rack with the least free, so that large ones stay whole, and best fit for nodes. What crossing racks costs
is not charged here.
"""

from twin.placement.recipe import PlacementRecipe

RACK = PlacementRecipe(
    "rack", "leftover-least", "best fit, gangs wait for one rack", "Slurm: --switches=1", gang="rack"
)
RACK_FIRST = PlacementRecipe(
    "rack-first", "leftover-least", "best fit, gangs in one rack if it has room", "Jeon et al., ATC 2019",
    gang="rack-first",
)  # fmt: skip
