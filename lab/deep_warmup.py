"""1F1B of `torch.distributed.pipelining` whose stages run further ahead, as plans with `extra_warmup` ask."""

from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch.distributed as dist
from torch import Tensor
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.pipelining.schedules import _batch_p2p, _wait_batch_p2p

Operation = tuple[Literal["F", "B"], int]


def order(stages: int, place: int, micro_batches: int, extra: int) -> Iterator[Operation]:
    """Yields forwards and backwards of the stage at `place` with the number of their micro-batch.

    The stage runs (stages - 1 - place)(1 + extra) forwards ahead of its backwards, as `warmup_of` of
    `twin.costs.stage_costs` where every boundary is a wide-area link.
    """
    ahead = min(micro_batches, (stages - 1 - place) * (1 + extra))
    yield from (("F", number) for number in range(ahead))
    for number in range(micro_batches):
        if ahead + number < micro_batches:
            yield ("F", ahead + number)
        yield ("B", number)


class DeepWarmup1F1B(Schedule1F1B):
    """1F1B with `extra_warmup` more micro-batches in flight for each boundary ahead.

    No send keeps its stage back. The schedule of PyTorch waits for a send together with the next receive;
    stages whose depths differ by more than two would so wait for each other for ever.
    """

    def __init__(
        self,
        stage: PipelineStage,
        micro_batches: int,
        loss: Callable[[Tensor, Tensor], Tensor],
        extra_warmup: int,
    ) -> None:
        super().__init__(stage, micro_batches, loss_fn=loss)
        self._extra = extra_warmup

    def _step_microbatches(
        self,
        arg_mbs: Any = None,
        kwarg_mbs: Any = None,
        target_mbs: Any = None,
        losses: Any = None,
        return_outputs: bool = True,
        loss_kwargs: Any = None,
    ) -> None:
        """Runs the micro-batches of one step in the order of `order`."""
        stage, total = self._stage, self._n_microbatches
        arg_mbs, kwarg_mbs = self._check_inputs(arg_mbs, kwarg_mbs, target_mbs, losses)
        target = None if target_mbs is None else target_mbs[0]
        self._initialize_stage(arg_mbs[0], kwarg_mbs[0], target, loss_kwargs)
        kept: list[tuple[list[dist.P2POp], list[dist.Work]]] = []  # what is sent must live until it is
        for kind, number in order(self._num_stages, stage.stage_index, total, self._extra):
            if kind == "F":
                _wait_batch_p2p(_batch_p2p(stage.get_fwd_recv_ops(number)))
                output = stage.forward_one_chunk(
                    number, arg_mbs[number], kwarg_mbs[number], save_forward_output=return_outputs
                )
                sends = stage.get_fwd_send_ops(number)
                kept.append((sends, _batch_p2p(sends)))
                self._maybe_compute_loss(stage, output, target_mbs, number, loss_kwargs)
            else:
                _wait_batch_p2p(_batch_p2p(stage.get_bwd_recv_ops(number)))
                found = self._maybe_get_loss(stage, number)
                stage.backward_one_chunk(number, loss=found, last_backward=number == total - 1)
                sends = stage.get_bwd_send_ops(number)
                kept.append((sends, _batch_p2p(sends)))
        for _, works in kept:
            _wait_batch_p2p(works)
        self._update_losses(stage, losses)
        stage.perform_reduce_grad(total if self.scale_grads else 1)
