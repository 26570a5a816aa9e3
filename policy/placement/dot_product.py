"""Alignment of what a job asks for with what a node has free: the dot product of both (CPU and GPUs).

Grandl et al., "Multi-resource packing for cluster schedulers" (Tetris), SIGCOMM 2014, take the highest:
`tetris`. FGD's comparison (Weng et al., ATC 2023) has the lowest under the name DotProd, which fills nodes
in use first: `dot-product`."""

from twin.placement.recipe import PlacementRecipe

DOT_PRODUCT = PlacementRecipe(
    "dot-product", "dot-least", "the lowest product of asked and free", "Weng et al., ATC 2023: DotProd"
)
TETRIS = PlacementRecipe(
    "tetris", "dot-most", "the highest product of asked and free", "Grandl et al., SIGCOMM 2014"
)
