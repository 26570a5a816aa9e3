"""Sampled plans are whole and legal, their probabilities are those of the samples, greedy means most
likely.
"""

from dataclasses import fields

import numpy as np
import pytest
import torch

from policy.hippo.decoding import autoregressive
from policy.hippo.decoding.log_probability import evaluate_actions, teacher_forcing_batch
from policy.hippo.decoding.sampling import GREEDY, Actions, joined, sample
from policy.hippo.networks.hippo_config import GnnConfig
from policy.hippo.networks.lower_agent import LowerAgent
from policy.hippo.networks.upper_agent import UpperAgent
from tests.support.hippo_fakes import FakeProblem


def agents(seed: int = 0, kind: str = "GraphSAGE") -> tuple[UpperAgent, LowerAgent]:
    torch.manual_seed(seed)
    return UpperAgent(GnnConfig(hidden_dim=16, type=kind)), LowerAgent()


def uniform(batch: int, k: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).random((batch, 2 + 3 * k))


def draw(k: int, n: int, batch: int = 64) -> tuple[FakeProblem, Actions]:
    problem = FakeProblem(k, n)
    return problem, sample(*agents(), problem, problem.observation(batch), uniform(batch, k)).actions


@pytest.mark.parametrize(("k", "n"), [(2, 5), (3, 8), (7, 30)])
def test_every_sample_places_all_layers_legally(k: int, n: int) -> None:
    _, actions = draw(k, n)
    assert (actions.layers.sum(1) == n).all()
    for row in range(len(actions.go)):
        live = actions.domain[row] >= 0
        domains = actions.domain[row][live].tolist()
        assert len(set(domains)) == len(domains)
        for step in range(int(live.sum())):
            assert actions.open[row, step, actions.domain[row, step], actions.layers[row, step] - 1]
            assert actions.legal[row, step, actions.choice[row, step]]


@pytest.mark.parametrize("kind", ["GraphSAGE", "GATv2"])
def test_judged_probabilities_are_the_sampling_frequencies(kind: str) -> None:
    problem, (upper, lower) = FakeProblem(2, 4, share=3), agents(3, kind)
    batch = 20_000
    one = problem.observation(1)
    observation = one.take(torch.zeros(batch, dtype=torch.int64))
    sampled = sample(upper, lower, problem, observation, uniform(batch, 2))
    actions = sampled.actions
    judged = evaluate_actions(upper, lower, teacher_forcing_batch(problem, observation, actions))
    np.testing.assert_allclose(sampled.log_prob, judged.log_prob.detach(), atol=1e-4)
    np.testing.assert_allclose(sampled.lower_log_prob, judged.lower_log_prob.detach(), atol=1e-4)
    whole = judged.log_prob + judged.lower_log_prob
    seen: dict[tuple[int, ...], tuple[int, float]] = {}
    for row in range(batch):
        key = (
            (0,)
            if actions.go[row] == 0
            else tuple(
                int(x)
                for part in (
                    actions.knob[row : row + 1],
                    actions.domain[row],
                    actions.layers[row],
                    actions.choice[row],
                )
                for x in part
            )
        )
        count, _ = seen.get(key, (0, 0.0))
        seen[key] = (count + 1, float(whole[row].exp().item()))
    assert sum(p for _, p in seen.values()) == pytest.approx(1.0, abs=0.02)
    for count, p in seen.values():
        assert count / batch == pytest.approx(p, abs=5 * (p / batch) ** 0.5 + 1e-4)


def test_greedy_is_the_mode_and_draws_respect_the_mask() -> None:
    logits = np.array([[0.0, -1e9, 3.0], [1.0, -1e9, -1e9]])
    index, chance = autoregressive.sample_rows(logits, np.array([GREEDY, GREEDY]))
    assert index.tolist() == [2, 0]
    assert chance == pytest.approx([-np.log1p(np.exp(-3)), 0.0])
    assert autoregressive.sample_rows(logits, np.array([0.001, 0.9999999]))[0].tolist() == [0, 0]
    many, _ = autoregressive.sample_rows(np.repeat(logits[:1], 1000, axis=0), np.linspace(0, 1 - 1e-12, 1000))
    assert set(many.tolist()) == {0, 2}


def test_joining_batches_of_different_length() -> None:
    _, short = draw(3, 8, 4)
    both = joined([short, short.padded(6).take(torch.tensor([0, 1]))])
    assert both.domain.shape[0] == 6 and (both.layers.sum(1) == 8).all()


def test_probabilities_do_not_depend_on_the_numbering_of_domains() -> None:
    problem, (upper, lower) = FakeProblem(3, 8), agents(5)
    observation = problem.observation(16)
    actions = sample(upper, lower, problem, observation, uniform(16, 3)).actions
    order = torch.tensor([2, 0, 1])
    back = torch.argsort(order)
    moved = type(observation)(
        **{
            name: getattr(observation, name)[:, order]
            if name in ("nodes", "begin", "end", "pace", "current")
            else getattr(observation, name)
            for name in observation.__dataclass_fields__
            if name != "edges"
        },
        edges=observation.edges[:, order][:, :, order],
    )
    renamed = Actions(
        actions.go,
        actions.knob,
        torch.where(actions.domain >= 0, back[actions.domain.clamp(min=0)], -1),
        actions.layers,
        actions.choice,
        actions.open[:, :, order],
        actions.legal,
        actions.behind,
    )
    before = evaluate_actions(upper, lower, teacher_forcing_batch(problem, observation, actions)).log_prob
    torch.testing.assert_close(
        evaluate_actions(upper, lower, teacher_forcing_batch(problem, moved, renamed)).log_prob, before
    )


def test_answers_are_judged_alike_alone_and_together() -> None:
    problem, (upper, lower) = FakeProblem(4, 12), agents(6)
    observation = problem.observation(40)
    actions = sample(upper, lower, problem, observation, uniform(40, 4)).actions
    whole = teacher_forcing_batch(problem, observation, actions)
    together = evaluate_actions(upper, lower, whole)
    index = torch.tensor([7, 3, 39, 3, 0])
    apart = evaluate_actions(upper, lower, whole.take(index))
    rebuilt = evaluate_actions(
        upper, lower, teacher_forcing_batch(problem, observation.take(index), actions.take(index))
    )
    for field in fields(together):
        part = getattr(apart, field.name)
        torch.testing.assert_close(part, getattr(together, field.name)[index])
        torch.testing.assert_close(part, getattr(rebuilt, field.name))
    assert 0 < int((actions.go == 0).sum()) < 40  # holds, too: they have no shares
