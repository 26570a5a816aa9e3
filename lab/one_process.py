"""The training of a lab in one process: no network, no cut, no move; what its losses are compared with."""

from lab.instructions import Job


def unmoved(job: Job, micro_batches: int, steps: int) -> tuple[float, ...]:
    """Mean loss of each step, nats, from the same weights, batches and optimizer as the lab's."""
    import torch

    from lab.small_gpt import GptSizes, batch, loss, make_layer

    sizes = GptSizes(job.layers, job.hidden, job.sequence, job.vocabulary)
    model = torch.nn.Sequential(*(make_layer(sizes, n, job.seed) for n in range(sizes.layers)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=job.learning_rate)
    found = []
    for step in range(steps):
        tokens, following = batch(sizes, step, micro_batches * job.micro_batch, job.seed)
        optimizer.zero_grad()
        losses = []
        for k in range(micro_batches):
            part = slice(k * job.micro_batch, (k + 1) * job.micro_batch)
            one = loss(model(tokens[part]), following[part])
            (one / micro_batches).backward()
            losses.append(one.detach())
        optimizer.step()
        found.append(float(torch.stack(losses).mean()))
    return tuple(found)
