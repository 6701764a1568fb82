"""A loop of one's own, and what may be chosen in it: the numbers of ``fit``, on any number of
workers.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import pytest
from own_loops import GRAPH, KEYS, LINK, MINI, SIZES, close, same, weights

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.train.update import Plateau
from graphtheta.errors import ConfigError, DataError, TapeError
from graphtheta.train.loop.schedule import cosine, step, warm_up

pytestmark = pytest.mark.reference


def own(
    comm: Any, per_step: int = 1, epochs: int = 2, **keys: Any
) -> tuple[list[float], dict[str, np.ndarray], dict[str, float]]:
    """The plain loop."""
    run = gt.Run(graph=GRAPH, comm=comm, **{**KEYS, **keys})
    losses = []
    for epoch in range(epochs):
        views = list(run.views(epoch))
        for i, view in enumerate(views):
            out = run.forward(view)
            losses.append(run.backward(run.loss(out, view)))
            if (i + 1) % per_step == 0 or i + 1 == len(views):
                run.step()
    return losses, weights(run), run.measure()


def fitted(
    comm: Any, epochs: int = 2, **keys: Any
) -> tuple[list[float], dict[str, np.ndarray], dict[str, float]]:
    """The same by the trainer, without the best weights."""
    trainer = gt.Trainer(graph=GRAPH, comm=comm, **{**KEYS, **keys})
    losses: list[float] = []
    for epoch in range(epochs):
        losses += trainer.summed(
            trainer.training.run(epoch, 0, trainer.strategy.steps_per_epoch), 0, []
        )[0].tolist()
    return losses, weights(trainer), trainer.measure()


PLAIN: dict[str, dict[str, Any]] = {
    "global": {"epochs": 3},
    "mini": MINI,
    "two views": {**MINI, "per_step": 2},
    "link": {**LINK, "epochs": 1},
    "scheduled": {
        **MINI,
        "lr_schedule": "cosine",
        "lr_decay_updates": 9,
        "lr_warmup_updates": 3,
        "clip_norm": 0.5,
        "optimiser": "adamw",
        "momentum": 0.0,
        "norm": "layer",
    },
    "precompute": {"precompute": True, "dropout": 0.0, "recompute": True},
}


@pytest.mark.one_in(5, 5)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PLAIN)
def test_the_plain_loop_is_fit_to_the_bit(name: str, size: int) -> None:
    keys = dict(PLAIN[name])
    per_step = keys.pop("per_step", 1)
    epochs = keys.pop("epochs", 2)
    mine = run_simulated(size, own, per_step, epochs, **keys)
    theirs = run_simulated(size, fitted, epochs, views_per_step=per_step, **keys)
    for (losses, state, metrics), (expected, theirs_state, theirs_metrics) in zip(
        mine, theirs, strict=True
    ):
        assert losses == expected and same(state, theirs_state) and metrics == theirs_metrics
    assert mine[0][0] == mine[-1][0]


def test_the_loop_does_not_depend_on_workers() -> None:
    one, three = (run_simulated(size, own, **MINI, clip_norm=0.3)[0] for size in SIZES)
    np.testing.assert_allclose(one[0], three[0], rtol=1e-9)
    close(one[1], three[1])


def test_a_penalty_on_parameters_counts_once() -> None:
    def program(comm: Any) -> tuple[float, dict[str, np.ndarray]]:
        run = gt.Run(
            graph=GRAPH,
            comm=comm,
            freeze="layers.1.*",
            **{**KEYS, "dropout": 0.0, "weight_decay": 0.0, "clip_norm": 0.2},
        )
        view = next(run.views(0))
        loss = run.loss(run.forward(view), view)
        for p in run.model.parameters():
            loss = loss + gt.sum(gt.square(p), axis=None) / comm.size
        total = run.backward(loss)
        run.step()
        return total, weights(run)

    (one, state), (three, other) = (run_simulated(size, program)[0] for size in SIZES)
    assert one == pytest.approx(three, rel=1e-9)
    close(state, other)


def test_the_order_of_the_steps_is_checked() -> None:
    run = gt.Run(graph=GRAPH, **KEYS)
    with pytest.raises(
        TapeError, match=r"step: there are no gradients; call backward\(loss\) first"
    ):
        run.step()
    view = next(run.views(0))
    loss = run.loss(run.forward(view), view)
    run.backward(loss)
    with pytest.raises(TapeError, match="no recorded forward pass"):
        run.backward(loss)
    # a pass that is not taken back leaves nothing behind, except that its draws are spent
    before = weights(run)
    run.forward(view)
    run.backward(run.loss(run.forward(view), view))
    assert same(before, weights(run)) and run.updates == 0
    run.step()
    assert run.updates == 1 and not same(before, weights(run))


def test_keys_of_fit_are_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=(
            r"epochs=3 has no meaning for gt\.Run; a custom loop does not read it; drop it, or use"
        ),
    ):
        gt.Run(graph=GRAPH, epochs=3)


def test_a_loss_that_is_not_finite_is_an_error_on_all_workers() -> None:
    def program(comm: Any) -> None:
        run = gt.Run(graph=GRAPH, comm=comm, **KEYS)
        view = next(run.views(0))
        run.backward(run.loss(run.forward(view), view) * math.inf)

    with pytest.raises(DataError, match="the loss of step 1 is inf"):
        run_simulated(2, program)


def test_a_loop_goes_on_from_its_state() -> None:
    def program(comm: Any, stops: bool) -> dict[str, np.ndarray]:
        run = gt.Run(graph=GRAPH, comm=comm, **{**KEYS, **MINI})
        for i, view in enumerate(run.views(0)):
            if stops and i == 2:
                state = run.state()
                run = gt.Run(graph=GRAPH, comm=comm, **{**KEYS, **MINI})
                run.load_state(state)
            run.backward(run.loss(run.forward(view), view))
            run.step()
        return weights(run)

    assert same(program(gt.start(), True), program(gt.start(), False))


# ---- two runs of one model


@pytest.mark.parametrize("size", SIZES)
def test_one_model_serves_runs_with_other_settings_at_once(size: int) -> None:
    keys = {**KEYS, "dropout": 0.0, "weight_decay": 0.0}
    options = ("hidden", "norm", "dropout")

    def program(comm: Any) -> None:
        first = gt.Trainer("gcn", GRAPH, comm=comm, precompute=True, recompute=True, **keys)
        model = first.model
        before = set(vars(first.model.layers[0]))
        given = {name: x for name, x in keys.items() if name not in options}
        second = gt.Trainer(model, GRAPH, comm=comm, freeze="layers.0.*", **given)
        assert len(first.probe.layers) == 1 and len(second.probe.layers) == 2
        np.testing.assert_allclose(
            [*first.measure().values()], [*second.measure().values()], rtol=1e-9
        )
        first.train_epoch(0)
        second.train_epoch(0)
        first.train_epoch(1)
        np.testing.assert_allclose(
            [*first.measure().values()], [*second.measure().values()], rtol=1e-9
        )
        assert set(vars(model.layers[0])) == before and all(
            p.requires_grad for p in model.parameters()
        )

    run_simulated(size, program)


# ---- values inside the model


@pytest.mark.parametrize("size", SIZES)
def test_values_of_layers_by_original_id(size: int) -> None:
    names = np.array([f"n{i}" for i in np.random.default_rng(0).permutation(GRAPH.n_nodes)])
    graph = graphs.random_graph(
        60, 260, edge_y=None, edge_train=None, edge_val=None, edge_test=None, node_ids=names
    )

    def program(comm: Any) -> Any:
        run = gt.Run("sage", graph, comm=comm, scores="logits", **KEYS)
        with pytest.raises(ConfigError, match="the graph has no node 'nobody'"):
            run.embed(["n3", "nobody"])
        for layer in (2, "layers.7", gt.Trainer("gcn", graph, comm=comm, **KEYS).model.layers[0]):
            with pytest.raises(ConfigError, match="embed: "):
                run.embed(layer=layer)
        first = run.model.layers[0]
        return (
            run.embed(),
            run.predict(),
            run.embed(["n5", "n3"], layer=0),
            run.embed(layer="layers.0"),
            run.embed(layer=first),
            gt.Run(graph=graph, comm=comm, **{**KEYS, **LINK}).embed(["n5"]),
        )

    found = run_simulated(size, program)
    assert all(x is None for rank in found[1:] for x in rank)
    last, predicted, two, path, module, link = found[0]
    # without a head the last layer gives the outputs
    np.testing.assert_array_equal(last[0], names)
    np.testing.assert_allclose(last[1], predicted[1])
    at = [int(np.flatnonzero(names == name)[0]) for name in ("n5", "n3")]
    assert list(two[0]) == ["n5", "n3"] and two[1].shape == (2, 5) and link[1].shape[0] == 1
    np.testing.assert_array_equal(two[1], path[1][at])
    np.testing.assert_array_equal(path[1], module[1])


# ---- updates


def test_schedules() -> None:
    assert [round(cosine(4)(i), 3) for i in range(6)] == [1, 0.854, 0.5, 0.146, 0, 0]
    assert [step(2, 0.5)(i) for i in range(5)] == [1, 1, 0.5, 0.5, 0.25]
    assert [warm_up(2, step(1, 0.5))(i) for i in range(5)] == [0.5, 1, 1, 0.5, 0.25]
    with pytest.raises(
        ConfigError, match="lr_schedule=cosine needs a number of updates; give --lr-decay-updates"
    ):
        gt.Job(lr_schedule="cosine")
    with pytest.raises(
        ConfigError, match=r"lr_decay=0\.5 has no meaning with lr_schedule=constant"
    ):
        gt.Job(lr_decay=0.5)
    with pytest.raises(ConfigError, match="lr_schedule gives -1 for update 0"):
        gt.Trainer(graph=GRAPH, lr_schedule=lambda update: -1, **KEYS).train_epoch(0)


@pytest.mark.parametrize("size", SIZES)
def test_an_update_follows_schedule_groups_and_clipping(size: int) -> None:
    """Plain gradient descent, against its formula."""
    keys = {**KEYS, "momentum": 0.0, "weight_decay": 0.0, "dropout": 0.0, "norm": "none", "lr": 0.5}

    def moved(comm: Any, **more: Any) -> dict[str, np.ndarray]:
        trainer = gt.Trainer(graph=GRAPH, comm=comm, **{**keys, **more})
        before = weights(trainer)
        trainer.train_epoch(0)
        return {name: x - before[name] for name, x in weights(trainer).items()}

    def program(comm: Any) -> list[dict[str, np.ndarray]]:
        return [
            moved(comm),
            moved(comm, clip_norm=0.01),
            moved(comm, lr_schedule=lambda update: 0.5 if update == 0 else 9),
            moved(comm, groups={"layers.0.*": {"lr": 0.25}, "*.bias": {"lr": 0.0}}),
            moved(comm, groups={"layers.1.weight": {"weight_decay": 0.1}}),
            moved(comm, lr_warmup_updates=4),
        ]

    plain, clipped, half, groups, decayed, warm = run_simulated(size, program)[0]
    norm = np.sqrt(sum(np.square(x / 0.5).sum() for x in plain.values()))
    assert norm > 0.01
    for name, x in plain.items():
        np.testing.assert_allclose(clipped[name], x * 0.01 / norm, rtol=1e-9)
        np.testing.assert_allclose(half[name], x / 2, rtol=1e-9)
        np.testing.assert_allclose(warm[name], x / 4, rtol=1e-9)
        factor = 0.5 if name.startswith("layers.0") else 0.0 if name.endswith("bias") else 1.0
        np.testing.assert_allclose(groups[name], x * factor, rtol=1e-9)
        assert np.allclose(decayed[name], x, rtol=1e-12, atol=0) == (name != "layers.1.weight")


@pytest.mark.second
@pytest.mark.parametrize("patience", [0, 1, 3])
def test_a_plateau_decays_as_in_pytorch(patience: int) -> None:
    torch = pytest.importorskip("torch")
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 1.0)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimiser, "max", factor=0.5, patience=patience, threshold=0.0, eps=0.0
    )
    ours = Plateau(0.5, patience)
    qualities = np.random.default_rng(patience).integers(0, 9, 60).tolist()
    for quality in qualities:
        theirs.step(quality)
        ours.take(quality)
        assert ours.factor == optimiser.param_groups[0]["lr"]
    again = Plateau(0.5, patience)
    again.begin(qualities)
    assert again.factor == ours.factor < 1


def test_groups_and_choices_that_mean_nothing_are_refused() -> None:
    for keys, message in (
        (
            {"groups": {"head.*": {"lr": 1}}},
            "groups: the pattern 'head.*' matches no parameter of Network",
        ),
        (
            {"groups": {"*": {"weightdecay": 1}}},
            r"sets 'weightdecay' \(did you mean 'weight_decay'\?\)",
        ),
        ({"freeze": ["nothing"]}, "freeze: the pattern 'nothing' matches no parameter"),
    ):
        with pytest.raises(ConfigError, match=message):
            gt.Trainer(graph=GRAPH, **KEYS, **keys)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_frozen_parameters_stay(model: str, size: int, caplog: pytest.LogCaptureFixture) -> None:
    keys = {**KEYS, "model": model, "norm": "none", "backend": "fused"}

    def program(comm: Any) -> Any:
        trainer = gt.Trainer(graph=GRAPH, comm=comm, freeze=["layers.0.*"], **keys)
        before = weights(trainer)
        asked = {p.name for p in trainer.training.versions.optimiser.parameters}
        trainer.train_epoch(0)
        after = weights(trainer)
        assert set(trainer.training.state()) >= {f"model/{name}" for name in before}
        other = gt.Trainer(graph=GRAPH, comm=comm, **keys)
        for p in other.model.layers[0].parameters():
            p.requires_grad = False
        given = {name: keys[name] for name in ("dtype", "optimiser", "momentum", "lr")}
        again = gt.Trainer(other.model, GRAPH, comm=comm, **given)
        again.train_epoch(0)
        assert same(after, weights(again))
        return before, after, asked

    before, after, asked = run_simulated(size, program)[0]
    moved = {name for name in before if not np.array_equal(before[name], after[name])}
    assert moved == asked == {name for name in before if name.startswith("layers.1")}
    assert not caplog.records


# ---- callbacks


class Notes(gt.Callback):
    """Writes down what it sees, and stops where it is told to."""

    def __init__(self, stop: tuple[str, int] = ("", 0)):
        self.seen: list[tuple[str, int, int]] = []
        self.stop = stop

    def note(self, what: str, now: Any) -> bool:
        self.seen.append((what, now.epoch, now.step))
        with pytest.raises((AttributeError, TypeError)):
            now.row["loss"] = 0
        return (what, now.step) == self.stop

    def on_step(self, now: Any) -> bool:
        return self.note("step", now)

    def on_evaluation(self, now: Any) -> bool:
        assert now.row["epoch"] == now.epoch and "val_loss" in now.row
        return self.note("evaluation", now)

    def on_epoch(self, now: Any) -> bool:
        return self.note("epoch", now)

    def on_end(self, now: Any) -> None:
        self.note("end", now)


@pytest.mark.parametrize("size", SIZES)
def test_callbacks_see_the_run_and_change_no_number(size: int) -> None:
    keys = {**KEYS, "strategy": "mini", "batch_size": 9, "epochs": 4, "eval_every": 2}

    def program(comm: Any, *callbacks: Notes) -> Any:
        mine = [Notes(callback.stop) for callback in callbacks]
        trainer = gt.Trainer(graph=GRAPH, comm=comm, **keys)
        result = trainer.fit(callbacks=mine)
        return (
            weights(trainer),
            [row["loss"] for row in result.history],
            [callback.seen for callback in mine],
            trainer.step,
        )

    plain, (state, losses, (seen,), steps) = (
        run_simulated(size, program)[0],
        run_simulated(size, program, Notes())[0],
    )
    assert same(plain[0], state) and plain[1] == losses
    per = steps // 4
    assert [s for s in seen if s[0] == "step"] == [
        ("step", 1 + i // per, 1 + i) for i in range(steps)
    ]
    assert [s for s in seen if s[0] == "evaluation"] == [
        ("evaluation", 2, 2 * per),
        ("evaluation", 4, steps),
    ]
    assert [s[1] for s in seen if s[0] == "epoch"] == [1, 2, 3, 4] and seen[-1][0] == "end"
    stopped = run_simulated(size, program, Notes(), Notes(("step", per + 1)))
    assert all(rank[3] == per + 1 for rank in stopped)
    assert run_simulated(size, program, Notes(("evaluation", 2 * per)))[0][3] == 2 * per


def test_one_worker_may_end_the_run() -> None:
    def program(comm: Any) -> int:
        class Last(gt.Callback):
            def on_epoch(self, now: Any) -> bool:
                return comm.rank == comm.size - 1 and now.epoch == 2

        trainer = gt.Trainer(graph=GRAPH, comm=comm, epochs=9, **KEYS)
        trainer.fit(callbacks=[Last()])
        return trainer.step

    assert run_simulated(3, program) == [2, 2, 2]
    wanted = r"callbacks\[0\] is a value of type Job; expected an object of a class derived from gt"
    with pytest.raises(ConfigError, match=wanted):
        gt.Trainer(graph=GRAPH, **KEYS).fit(callbacks=[gt.Job()])


def test_a_run_that_a_callback_ended_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    keys = {**KEYS, "epochs": 5, "checkpoint_every": 1, "out": "run"}
    gt.Trainer(graph=GRAPH, **keys).fit(callbacks=[Notes(("epoch", 2))])
    again = gt.Trainer(graph=GRAPH, resume=True, **keys)
    assert len(again.fit().history) == 2 and again.step == 2
