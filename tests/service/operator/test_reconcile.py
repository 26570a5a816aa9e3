"""The operator's decisions: worked cases, and the properties that let it be stopped anywhere.

A cluster here is a set of objects that actions change at once, and the adviser is arithmetic: a plan takes
12 / GPUs seconds an iteration, or what `speed` says of a domain. No API server is involved.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.export.targets.training_plan import schema
from service.operator.cluster_view import DIGEST, ChildObject, ClusterView
from service.operator.plan_object import PlanObject, PlanState
from service.operator.reconcile import (
    Action,
    AdvisedPlan,
    ApplyChild,
    DeleteChild,
    SetStatus,
    child_name,
    reconcile,
    refused,
    worth,
)

Json = dict[str, Any]
DOMAINS = ("a", "b", "c")
STATUS = jsonschema.Draft202012Validator(schema()["properties"]["status"])


def share(domain: str, gpus: int) -> Json:
    return {"domain": domain, "layers": 8, "tensorParallel": 1, "stages": gpus, "gpus": list(range(gpus))}


def spec(gpus: Mapping[str, int], **more: Any) -> Json:
    return {
        "model": "m", "globalBatch": 8, "shares": [share(k, n) for k, n in gpus.items()], "dataParallel": 1,
        "microBatch": 1, "microBatches": 8, "schedule": "1f1b", "extraWarmup": 0, "chunks": 1,
        "recompute": "full", "zero": 0, "routes": [],
        "parts": [{"stage": 0, "domain": "a", "first": 0, "past": 8}], **more,
    }  # fmt: skip


@dataclass
class Toy:
    """An adviser whose plans are counts of GPUs; it uses every GPU of the fastest domains up to two."""

    speed: dict[str, float] = field(default_factory=lambda: dict.fromkeys(DOMAINS, 1.0))
    asked: int = 0

    def written(self, plan: PlanObject) -> Json:
        return plan.plan(DOMAINS)

    def counts(self, plan: Json) -> dict[str, int]:
        return {DOMAINS[one["domain"]]: len(one["gpus"]) for one in plan["shares"]}

    def seconds(self, plan: Json) -> float:
        return 12 / sum(self.speed[k] * n for k, n in self.counts(plan).items())

    def ask(self, job: tuple[str, int], gpus: Mapping[str, int], given: Json | None) -> AdvisedPlan:
        self.asked += 1
        best = sorted((k for k in gpus if gpus[k]), key=lambda k: (-self.speed[k] * gpus[k], k))[:2]
        given_s = None if given is None else self.seconds(given)
        if not best:
            return AdvisedPlan(None, None, given_s, "no GPUs")
        found = PlanObject("n", "p", "u", 1, False, spec({k: gpus[k] for k in best}), None).plan(DOMAINS)
        return AdvisedPlan(found, self.seconds(found), given_s)


def manifests(plan: PlanObject, state: PlanState) -> list[Json]:
    name, content = child_name(plan, state), json.dumps([state.model, state.global_batch, state.plan])
    return [
        {"kind": kind, "metadata": {"name": name, "annotations": {DIGEST: content}}}
        for kind in ("ConfigMap", "JobSet")
    ]


@dataclass(frozen=True)
class World:
    """A TrainingPlan and its cluster."""

    plan: PlanObject
    view: ClusterView

    def after(self, *actions: Action) -> "World":
        plan, children = self.plan, {(c.kind, c.name): c for c in self.view.children}
        for action in actions:
            if isinstance(action, SetStatus):
                status = action.state.to_status()
                STATUS.validate(status)
                plan = replace(plan, state=PlanState.of(status))
            elif isinstance(action, DeleteChild):
                del children[action.kind, action.name]
            else:
                head = action.manifest["metadata"]
                key = action.manifest["kind"], head["name"]
                old = children.get(key, ChildObject(*key, ""))
                assert old.kind != "JobSet" or key not in children, "a JobSet cannot be changed"
                children[key] = replace(old, digest=head["annotations"][DIGEST])
        return World(plan, replace(self.view, children=tuple(children.values())))

    def todo(self, toy: Toy) -> list[Action]:
        return reconcile(self.plan, self.view, toy, manifests)

    def settled(self, toy: Toy) -> "World":
        """The world after the operator has come by until nothing is to do."""
        world = self
        for _ in range(4):
            actions = world.todo(toy)
            if not actions:
                return world
            world = world.after(*actions)
        raise AssertionError(f"does not settle: {world.todo(toy)}")

    def changed(self, **spec: Any) -> "World":
        plan = replace(self.plan, spec={**self.plan.spec, **spec}, generation=self.plan.generation + 1)
        return replace(self, plan=plan)

    def on(self, **gpus: int) -> "World":
        return replace(self, view=replace(self.view, gpus=gpus))

    def marked(self, **child: Any) -> "World":
        """JobSets get these marks, as their controller gives them."""
        children = tuple(replace(c, **child) if c.kind == "JobSet" else c for c in self.view.children)
        return replace(self, view=replace(self.view, children=children))

    @property
    def state(self) -> PlanState:
        assert self.plan.state is not None
        return self.plan.state

    @property
    def names(self) -> list[str]:
        return sorted(f"{c.kind}/{c.name}" for c in self.view.children)


def world(gpus: Mapping[str, int], nodes: Mapping[str, int], **more: Any) -> World:
    return World(PlanObject("n", "p", "u", 1, False, spec(gpus, **more), None), ClusterView(nodes))


def kinds(actions: list[Action]) -> list[str]:
    return [type(action).__name__ for action in actions]


def test_a_new_plan_gets_its_children_after_its_status() -> None:
    start, toy = world({"a": 2, "b": 2}, {"a": 4, "b": 4}), Toy()
    actions = start.todo(toy)
    assert kinds(actions) == ["SetStatus", "ApplyChild", "ApplyChild"]
    done = start.after(*actions)
    assert done.names == ["ConfigMap/p-r1", "JobSet/p-r1"] and done.todo(toy) == []
    assert done.state.phase == "Pending" and done.state.gpus == {"a": 2, "b": 2}
    assert done.state.iteration_s == 3.0
    running = done.marked(ready=True).settled(toy)
    assert running.state.phase == "Running" and running.state.revision == 1
    ended = running.marked(end="Finished").settled(toy)
    assert ended.state.phase == "Finished"
    assert ended.changed(follow="better").on().settled(toy).state.revision == 1


def test_a_plan_that_does_not_fit_the_nodes_is_replaced_or_waits() -> None:
    toy = Toy()
    replaced = world({"a": 4, "b": 4}, {"b": 4, "c": 2}).settled(toy)
    assert replaced.state.gpus == {"b": 4, "c": 2} and "needs 4 GPUs in a" in replaced.state.message
    waits = world({"a": 4}, {"b": 4}, follow="never").settled(toy)
    assert waits.state.plan is None and waits.names == [] and waits.state.phase == "Pending"
    assert waits.on(a=4).settled(toy).names == ["ConfigMap/p-r1", "JobSet/p-r1"]
    assert "no plan fits" in world({"a": 1}, {}).settled(toy).state.message


def test_the_better_plan_is_taken_at_the_start_where_it_is_wished() -> None:
    nodes, toy = {"a": 4, "b": 4}, Toy()
    assert world({"a": 4}, nodes).settled(toy).state.gpus == {"a": 4}
    assert world({"a": 4}, nodes, follow="better").settled(toy).state.gpus == {"a": 4, "b": 4}
    assert world({"a": 4}, nodes, follow="better", minGain=2.0).settled(toy).state.gpus == {"a": 4}


def test_lost_nodes_bring_another_plan_and_the_old_children_go_first() -> None:
    toy = Toy()
    lost = (
        world({"a": 4, "b": 4}, {"a": 4, "b": 4, "c": 4})
        .settled(toy)
        .marked(ready=True)
        .settled(toy)
        .on(a=4, c=4)
    )
    actions = lost.todo(toy)
    assert kinds(actions) == ["SetStatus", "DeleteChild", "DeleteChild", "ApplyChild", "ApplyChild"]
    after = lost.after(*actions)
    assert after.names == ["ConfigMap/p-r2", "JobSet/p-r2"] and after.state.gpus == {"a": 4, "c": 4}
    assert after.state.phase == "Moving" and "GPUs were lost" in after.state.message
    none = after.on().settled(toy)
    assert none.state.message.startswith("waits") and none.names == after.names
    back = none.on(a=4, c=4).settled(toy)
    assert back.state.message == "the GPUs are back" and back.state.revision == 2


def test_a_fixed_plan_waits_for_its_nodes() -> None:
    toy = Toy()
    lost = world({"a": 4}, {"a": 4, "b": 4}, follow="never").settled(toy).on(b=4).settled(toy)
    assert lost.state.revision == 1 and lost.state.message.startswith("waits: the plan needs 4 GPUs in a")
    ordered = lost.changed(shares=[share("b", 4)]).settled(toy)
    assert ordered.state.revision == 2 and ordered.state.gpus == {"b": 4}


def test_a_move_has_to_pay_for_its_pause() -> None:
    # H 3600 s, pause 120 s, margin 5 %: worth from old / new > 1.05 * 3600 / 3480 = 1.0862 on.
    plan = PlanObject("n", "p", "u", 1, False, spec({"a": 1}), None)
    assert worth(plan, 1.0863, 1.0) and not worth(plan, 1.0861, 1.0) and worth(plan, None, 9.0)
    toy, slow = Toy(), {"a": 1.0, "b": 1.0, "c": 1.05}
    kept = world({"a": 4}, {"a": 4, "c": 4}, follow="better", minGain=2.0).settled(toy)
    toy.speed = slow
    assert kept.changed(shares=[share("c", 4)], minGain=0.05, follow="lost").settled(toy).state.revision == 1
    toy.speed = {**slow, "c": 1.2}
    moved = kept.changed(shares=[share("c", 4)], minGain=0.05, follow="lost").settled(toy)
    assert moved.state.gpus == {"c": 4} and moved.state.message == "moved: 2.5 s an iteration against 3 s"
    assert kept.changed(minGain=0.05).settled(toy).state.gpus == {"a": 4, "c": 4}


def test_another_job_is_another_plan_without_comparison() -> None:
    toy = Toy()
    done = world({"a": 4}, {"a": 4}).settled(toy).changed(globalBatch=16).settled(toy)
    assert done.state.revision == 2 and done.state.global_batch == 16


def test_a_failed_job_stays_until_it_is_changed() -> None:
    toy = Toy()
    failed = world({"a": 4}, {"a": 4, "b": 4}).settled(toy).marked(end="Failed").settled(toy)
    assert failed.state.phase == "Failed" and failed.state.revision == 1
    assert failed.on(b=4).settled(toy).state.revision == 2


def test_what_is_no_plan_is_said_once_and_touches_nothing() -> None:
    done = world({"a": 4}, {"a": 4}).settled(Toy())
    (action,) = refused(done.plan, "no domain x")
    said = done.after(action)
    assert refused(said.plan, "no domain x") == [] and said.names == done.names
    assert said.state.plan == done.state.plan
    (first,) = refused(world({"a": 4}, {}).plan, "wrong")
    assert isinstance(first, SetStatus) and first.state.phase == "Failed"


def test_a_deleted_plan_leaves_nothing() -> None:
    done = world({"a": 4}, {"a": 4}).settled(Toy())
    gone = replace(done, plan=replace(done.plan, deleting=True))
    actions = gone.todo(Toy())
    assert kinds(actions) == ["DeleteChild", "DeleteChild"]
    assert gone.after(*actions).names == [] and gone.after(*actions).todo(Toy()) == []


def test_a_child_that_somebody_changed_or_deleted_comes_back() -> None:
    toy = Toy()
    done = world({"a": 4}, {"a": 4}).settled(toy)
    (config, job_set) = sorted(done.view.children, key=lambda c: c.kind)
    edited = replace(
        done, view=replace(done.view, children=(replace(config, digest="x"), replace(job_set, digest="x")))
    )
    (action,) = edited.todo(toy)
    assert isinstance(action, ApplyChild) and action.manifest["kind"] == "ConfigMap"
    alone = replace(done, view=replace(done.view, children=(config,)))
    assert [c.manifest["kind"] for c in alone.todo(toy) if isinstance(c, ApplyChild)] == ["JobSet"]


GPUS = st.dictionaries(st.sampled_from(DOMAINS), st.integers(0, 6), max_size=3)
USED = st.dictionaries(st.sampled_from(DOMAINS), st.integers(1, 6), min_size=1, max_size=3)
FOLLOW = st.sampled_from(("never", "lost", "better"))
SPEEDS = st.sampled_from((0.5, 1.0, 1.3))
EVENTS = st.one_of(
    st.tuples(st.just("nodes"), GPUS),
    st.tuples(st.just("shares"), USED),
    st.tuples(st.just("follow"), FOLLOW),
    st.tuples(st.just("batch"), st.sampled_from((8, 16))),
    st.tuples(
        st.just("speed"), st.fixed_dictionaries(dict.fromkeys(DOMAINS, st.sampled_from((0.5, 1.0, 1.3))))
    ),
    st.tuples(st.just("mark"), st.sampled_from(({"ready": True}, {"end": "Failed"}, {"end": "Finished"}))),
    st.tuples(st.just("lose"), st.sampled_from(("ConfigMap", "JobSet"))),
)


def happened(now: World, toy: Toy, event: tuple[str, Any]) -> World:
    kind, value = event
    if kind == "nodes":
        return now.on(**value)
    if kind == "shares":
        return now.changed(shares=[share(k, n) for k, n in value.items()])
    if kind == "follow":
        return now.changed(follow=value)
    if kind == "batch":
        return now.changed(globalBatch=value)
    if kind == "speed":
        toy.speed = value
        return now
    if kind == "mark":
        return now.marked(**value)
    children = tuple(child for child in now.view.children if child.kind != value)
    return replace(now, view=replace(now.view, children=children))


@settings(max_examples=80, deadline=None)
@given(USED, GPUS, FOLLOW, st.lists(EVENTS, max_size=6), st.data())
def test_stopped_after_any_action_it_ends_where_it_would_have_ended(
    used: dict[str, int],
    nodes: dict[str, int],
    follow: str,
    events: list[tuple[str, Any]],
    data: st.DataObject,
) -> None:
    toy, now = Toy(), world(used, nodes, follow=follow)
    for event in [None, *events]:
        if event is not None:
            now = happened(now, toy, event)
        actions = now.todo(toy)
        assert actions == now.todo(toy), "the same question has the same answer"
        whole = now.settled(toy)
        assert whole.todo(toy) == []
        for done in range(len(actions) + 1):
            assert same(now.after(*actions[:done]).settled(toy), whole)
        wanted = [] if whole.state.plan is None else [
            f"{kind}/{child_name(whole.plan, whole.state)}" for kind in ("ConfigMap", "JobSet")
        ]  # fmt: skip
        assert whole.names == wanted, "exactly the children of the revision in force"
        content = {one["metadata"]["annotations"][DIGEST] for one in manifests(whole.plan, whole.state)}
        assert {child.digest for child in whole.view.children} <= content, "and they hold its plan"
        stop = data.draw(st.integers(0, len(actions)))
        now = now.after(*actions[:stop])


def same(one: World, other: World) -> bool:
    """Equal but for the order in which children are listed."""
    return one.plan == other.plan and one.names == other.names and one.view.gpus == other.view.gpus
