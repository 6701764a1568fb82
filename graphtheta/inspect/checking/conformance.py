"""``gt.check``: checks values, gradients, state and invariances of a user's layer.

The runs themselves are made by ``trial``. They use the reference back end, which compiles nothing;
the last check compares one run on the fused back end with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphtheta.base.arguments import checked
from graphtheta.base.html import html_table
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.engine.layer.module import Module
from graphtheta.engine.layer.settings import pass_scope
from graphtheta.engine.layer.superstep import fallback_text
from graphtheta.engine.view.hop import Layers
from graphtheta.errors import CheckError, ConfigError
from graphtheta.graph.data.columns import listed
from graphtheta.inspect.checking import eager, trial
from graphtheta.inspect.checking.alike import alike
from graphtheta.inspect.checking.made_twice import differences
from graphtheta.inspect.checking.outside import Outside
from graphtheta.inspect.checking.trial import Case, Numbers, Samples
from graphtheta.inspect.checking.weighted import repeating, sampled
from graphtheta.ops.edge.backend.fused import backend_scope, fallbacks
from graphtheta.ops.functions.constant import HeldConstants

# allowed relative errors of sums in another order, and of the same sums
ROUNDING, SAME = 1e-9, 1e-12
# a gradient smaller than this fraction of the largest one is rounding error
NOTHING = 1e-12
# one placement of each shape: edges with their source, with their destination, with neither
PLACEMENTS = ("1d-src", "1d-dst", "vertex-cut")
# as of the key self_loops of a job
LOOPS = ("auto", "yes", "no")
# number of points at which a gradient must vanish to be reported as zero
POINTS = 3


@dataclass
class Report:
    """Largest relative error of each check, and which layers run on the reference back end."""

    gradients: float
    permutation: float
    workers: float
    weights: float
    backends: float
    eager: float
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([*(f"{name}: {error}" for name, error in self._errors()), *self.notes])

    def _repr_html_(self) -> str:
        rows = [*self._errors(), *((note, "") for note in self.notes)]
        return html_table("checked", ("what was compared", "largest relative error"), rows)

    def _errors(self) -> list[tuple[str, str]]:
        """What was compared, and the largest relative error as a text."""
        compared = {
            "gradients against finite differences": self.gradients,
            "renumbered nodes": self.permutation,
            f"1 to 4 workers, {', '.join(PLACEMENTS)}": self.workers,
            "importance weights against repeated edges": self.weights,
            "fused against reference back end": self.backends,
            "edge program against gather on arrays of edges": self.eager,
        }
        return [(name, f"{error:.1e}") for name, error in compared.items()]


@checked
def check(
    layer: Layer | Model,
    d_in: int | None = None,
    d_edge: int | None = None,
    *,
    node_columns: Mapping[str, Any] | None = None,
    edge_columns: Mapping[str, Any] | None = None,
    self_loops: str = "auto",
    tolerance: float = 1e-6,
) -> Report:
    """Check a layer (or a whole model that returns node values).

    Args:
        layer: The layer or model, with its parameters; it is copied, not changed.
        d_in: Width of its input; by default the first axis of one of its parameters, whichever
            fits.
        d_edge: Width of the edge attributes it reads; by default found in the same way.
        node_columns, edge_columns: Values of the named columns that it reads, arrays [m] or
            [m, k]. Rows of the small graph are drawn from them:
            ``edge_columns={"type": range(4)}`` gives codes 0 to 3.
        self_loops: As the key of a job: "yes" adds the missing self loops to the small graph, "no"
            drops all, and "auto" adds them for layers that are made for them.
        tolerance: Largest relative error allowed for gradients; the other checks allow 1e-9.

    Returns:
        The errors found, all within bounds.

    Raises:
        CheckError: A check failed; the message says which, and by how much.
        ConfigError: The widths cannot be inferred, or ``layer`` is not a layer or model object.
        DataError: A column has no rows, or cannot be a column of a graph; or the layer reads an
            integer column, and self loops that have no value in it are added.
        GraphThetaError: The layer does not run.
    """
    if self_loops not in LOOPS:
        raise ConfigError(f"self_loops {self_loops!r} is not known; choose from {', '.join(LOOPS)}")
    outside = Outside(trial.copied(layer))
    try:
        samples = trial.sample(node_columns, "node"), trial.sample(edge_columns, "edge")
        subject = _Subject.of(
            layer=layer,
            d_in=d_in,
            d_edge=d_edge,
            samples=samples,
            loops=self_loops,
            outside=outside,
        )
        with backend_scope("reference"), np.errstate(all="ignore"):
            subject.check_made(layer)
            subject.check_finite()
            subject.check_stateless()
            subject.check_history()
            subject.check_trained()
            gradients = subject.check_gradients(tolerance)
            permutation = subject.check_permutation()
            workers = subject.check_workers()
            weights = subject.check_weights()
            evaluated = subject.check_eager()
        with np.errstate(all="ignore"):
            backends = subject.check_backends()
    finally:
        outside.restore()
    return Report(
        gradients=gradients,
        permutation=permutation,
        workers=workers,
        weights=weights,
        backends=backends,
        eager=evaluated,
        notes=subject.notes,
    )


@dataclass
class _Subject:
    """The model under test. Each check runs copies of it; its parameters are at generic values.

    Attributes:
        other: Another graph with other values.
        outside: The state that the model may reach outside of itself.
        layers: The supersteps of the model.
        in_order: Whether a sum depends on the order of the edges.
        unread: Names of parameters that no operation reads.
        notes: Which layers run on the reference back end.
    """

    name: str
    model: Model
    case: Case
    other: Case
    outside: Outside
    layers: Layers
    in_order: bool
    unread: list[str]
    notes: list[str]

    @classmethod
    def of(
        cls,
        layer: Layer | Model,
        d_in: int | None,
        d_edge: int | None,
        samples: Samples,
        loops: str,
        outside: Outside,
    ) -> _Subject:
        # a dry run may leave state in the model, so it gets a copy of its own, and outside of it
        fitting = trial.fitting(trial.copied(layer), d_in, d_edge, samples, loops)
        outside.restore()
        dry_run = fitting.probe
        with backend_scope("fused"):
            slow = dict.fromkeys(
                fallback_text(step.layer, reason)
                for step in dry_run.supersteps
                if step.program is not None
                for reason in fallbacks(step.program)
            )
        model = trial.copied(layer)
        trial.make_double(model)
        trial.move_parameters(model, 0)
        return cls(
            name=type(layer).__name__,
            model=model,
            case=fitting.case,
            other=fitting.other,
            outside=outside,
            layers=dry_run.layers,
            in_order=any(step.ordered for step in dry_run.supersteps),
            unread=dry_run.unread,
            notes=list(slow),
        )

    def copy(self) -> Model:
        """A model that has not run."""
        return deepcopy(self.model)

    def run(
        self, model: Model | None = None, case: Case | None = None, training: bool = False
    ) -> Numbers:
        return trial.run(model or self.copy(), case or self.case, self.layers, training=training)

    def fail(self, text: str) -> None:
        raise CheckError(f"{self.name}: {text}")

    def bound(self, error: float, most: float, text: str) -> float:
        if not error <= most:
            self.fail(f"{text} (relative error {error:.2e}, allowed {most:.0e})")
        return error

    # ---- the checks

    def check_made(self, layer: Layer | Model) -> None:
        """The constructor makes the same layer whenever it is called."""
        names = differences(layer)
        if names:
            self.fail(
                f"its constructor draws {listed(names)} anew each time, so that every worker would"
                " have a layer of its own: draw parameters by gt.Parameter.glorot, and other"
                " values from a generator with a fixed seed"
            )

    def check_finite(self) -> None:
        """Values and gradients are finite, also at nodes without edges and at self loops."""
        for training in (False, True):
            for name, x in self.run(training=training).items():
                bad = np.argwhere(~np.isfinite(x))
                if len(bad):
                    verb = "are" if name == "values" else "is"
                    self.fail(
                        f"its {name} {verb} not finite: {x[tuple(bad[0])]}"
                        f" {self._where(name, bad[0])}; look for 0 / 0, log(0), and the gradient of"
                        " sqrt or of a norm at 0, and clip what goes in, as in"
                        " gt.sqrt(gt.maximum(x, 1e-12))"
                    )

    def _where(self, name: str, at: np.ndarray) -> str:
        if name not in ("values", "gradient of x"):
            return f"at {at.tolist()}"
        node = int(at[0])
        src, dst = self.case.graph.edge_index
        degree = int(np.sum(dst == node))
        loops = int(np.sum((src == node) & (dst == node)))
        return f"at node {node}, which has {degree} in-edges, {loops} of them self loops"

    def check_stateless(self) -> None:
        """A pass depends on parameters, settings and inputs only, not on earlier passes."""
        for training in (False, True):
            used = self.copy()
            first = self.run(used, training=training)
            other = self.run(training=training)
            again = self.run(used, training=training)
            if trial.furthest(first, other)[0] > SAME:
                self.fail(
                    "two equal models compute different values in their first pass: the layer draws"
                    " random numbers, which differ from worker to worker (use gt.dropout, which"
                    " does not), or keeps state outside of itself"
                )
            if trial.furthest(first, again)[0] > SAME:
                self.fail(
                    f"a second call computes other values{self._changed(used)}: the layer keeps"
                    " state between calls; what a pass computes must depend on parameters,"
                    " settings and inputs only"
                )
        used = self.copy()
        fresh = self.copy()
        self.run(used)
        for name, put in _changes(used, fresh):
            put()
            # a copy, so that ``fresh`` itself never runs
            outcomes = [self._outcome(model) for model in (used, deepcopy(fresh))]
            if (
                isinstance(outcomes[0], dict)
                and isinstance(outcomes[1], dict)
                and trial.furthest(*outcomes)[0] > SAME
            ):
                self.fail(
                    f"a change of {name} has another effect on a layer that has run than on a new"
                    " one: the layer caches something computed from it in an earlier call; compute"
                    " it in each call"
                )

    def check_history(self) -> None:
        """What a pass computes does not depend on an earlier pass over another graph."""
        for training in (False, True):
            self.outside.restore()
            expected = self.run(case=self.other, training=training)
            self.outside.restore()
            used = self.copy()
            self.run(used, training=training)
            outcome = self._outcome(used, self.other, training)
            changed = self._changed(used, *self.outside.changed())
            self.outside.restore()
            if isinstance(outcome, Exception) or trial.furthest(expected, outcome)[0] > SAME:
                self.fail(
                    "after a pass over one graph, it computes other values on a second graph than "
                    f"a new layer does there{changed}: the layer stores something of the first "
                    "graph; compute it in each pass, or give it to the graph as a column"
                )

    def _outcome(self, model: Model, case: Case | None = None, training: bool = False) -> Any:
        try:
            return self.run(model, case, training)
        except Exception as error:
            # the layer may not allow the changed setting, and says so in any way
            return error

    def _changed(self, used: Model, *outside: str) -> str:
        """What a run of the model has changed, in words: its attributes, and variables outside."""
        names = [*outside]
        names += [
            f"self.{name}"
            for before, after in zip(self.model.modules(), used.modules(), strict=False)
            for name in vars(after)
            if not alike(vars(before).get(name), vars(after)[name])
            and not isinstance(vars(after)[name], Module)
        ]
        return f", and {', '.join(names[:3])} changed" if names else ""

    def check_trained(self) -> None:
        """Every parameter that is trained has a gradient above rounding errors at one point at
        least.
        """
        if self.unread:
            self.fail(
                f"no operation reads {', '.join(self.unread)}, so it is not trained; pass the"
                " gt.Parameter itself to functions of gt: its .value is a constant"
            )
        left = {p.name: 0.0 for p in self.model.parameters() if p.requires_grad}
        for point in range(POINTS):
            model = self.copy()
            trial.move_parameters(model, point, 0.3)
            numbers = self.run(model, training=True)
            largest = max(
                float(np.max(np.abs(g), initial=0))
                for name, g in numbers.items()
                if name != "values"
            )
            sizes = {
                name: float(np.max(np.abs(numbers[f"gradient of {name}"]), initial=0))
                for name in left
            }
            left = {
                name: max(size, left[name])
                for name, size in sizes.items()
                if size <= NOTHING * largest
            }
            if not left:
                return
        exact = [name for name, size in left.items() if size == 0]
        if exact:
            self.fail(
                f"the gradient of {', '.join(exact)} is zero, so it is not trained: the values do"
                " not depend on it, or an operation on the path has None as its gradient rule"
            )
        self.fail(
            f"the gradient of {', '.join(left)} is zero up to rounding errors, which Adam would"
            " turn into steps: a later operation cancels it, as batch norm cancels a bias in front"
            " of it, and softmax a term that all in-edges of a node share; leave it out, as in"
            " GCN(d_in, d_out, bias=False)"
        )

    def check_gradients(self, tolerance: float) -> float:
        """Central differences along one random direction of every trained parameter and input."""
        model = self.copy()
        step = 1e-6
        worst = 0.0
        constants = HeldConstants()
        with constants.recording():
            exact = self.run(model)

        def value(case: Case) -> float:
            with constants.again():
                out = self.run(model, case)["values"]
            return float((out * trial.weights(np.arange(trial.N_NODES), out.shape)).sum())

        for name, d, put in trial.directions(model, self.case):
            numeric = (value(put(step * d)) - value(put(-step * d))) / (2 * step)
            put(0 * d)
            error = abs(numeric - float((exact[name] * d).sum())) / max(1.0, abs(numeric))
            worst = max(
                worst, self.bound(error, tolerance, f"its {name} differs from finite differences")
            )
        return worst

    def check_permutation(self) -> float:
        renumbered, number = self.case.renumbered(reorder=not self.in_order)
        error = trial.difference(self.run()["values"], self.run(case=renumbered)["values"][number])
        return self.bound(
            error,
            ROUNDING,
            "its values change when nodes are renumbered; it depends on ids or on the order of"
            " edges",
        )

    def check_workers(self) -> float:
        """Values and gradients, with dropout on, against one worker."""
        expected = self.run(training=True)
        worst = 0.0
        for size in (2, 3, 4):
            for placement in PLACEMENTS:

                def program(comm: Comm, placement: str = placement) -> Numbers:
                    return trial.run(
                        self.copy(), self.case, self.layers, comm, placement, training=True
                    )

                error, name = trial.furthest(expected, run_simulated(size, program)[0])
                worst = max(
                    worst,
                    self.bound(
                        error,
                        ROUNDING,
                        f"its {name} changes with the number of workers or the partition",
                    ),
                )
        return worst

    def check_weights(self) -> float:
        """In a sampled view, an edge of importance weight k is k equal edges."""
        worst = 0.0
        expected = trial.run(self.copy(), self.case, self.layers, view_of=sampled)
        for layer, aggregator, model in repeating(self.copy()):
            error, name = trial.furthest(
                expected, trial.run(model, self.case, self.layers, view_of=sampled)
            )
            text = (
                f"its {name} changes where k equal edges take the place of one with importance "
                f"weight k in a sampled view: the aggregator {aggregator} of {layer} ignores "
                "scale, or one of its methods does; accumulate and backward must count an edge k "
                "times if its scale is k. For a statistic of the sample itself, such as its "
                "largest message, set weighted = False in the class of the aggregator"
            )
            worst = max(worst, self.bound(error, ROUNDING, text))
        return worst

    def check_eager(self) -> float:
        """Values and gradients against gather on arrays of edges, outside of training, since a draw
        belongs to an edge program.
        """
        expected = self.run()
        with pass_scope(eager.settings()):
            error, name = trial.furthest(expected, self.run())
        return self.bound(
            error,
            ROUNDING,
            f"its {name} differs from gather on arrays of edges: a fault of graphtheta, if gather"
            " calls functions of gt only",
        )

    def check_backends(self) -> float:
        """The fused back end against the reference."""
        with backend_scope("reference"):
            expected = self.run(training=True)
        with backend_scope("fused"):
            error, name = trial.furthest(expected, self.run(training=True))
        return self.bound(
            error, ROUNDING, f"its {name} differs between the back ends: a fault of graphtheta"
        )


def _changes(*models: Model) -> Iterator[tuple[str, Any]]:
    """Changes of parameters and numeric settings: the name, and a function that applies it."""

    def parameters() -> None:
        for model in models:
            trial.move_parameters(model, POINTS)

    yield "its parameters", parameters
    for copies in zip(*(list(model.modules()) for model in models), strict=True):
        for name, old in list(vars(copies[0]).items()):
            if not isinstance(old, (bool, int, float)):
                continue
            new = (
                not old
                if isinstance(old, bool)
                else old + 1
                if isinstance(old, int)
                else 0.5 * old + 0.125
            )

            def put(value: Any, name: str = name, modules: tuple[Module, ...] = copies) -> None:
                for module in modules:
                    # also of a layer that refuses assignments
                    vars(module)[name] = value

            yield f"self.{name}", lambda put=put, new=new: put(new)
            put(old)
