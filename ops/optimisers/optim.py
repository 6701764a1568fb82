"""Optimisers, with the arithmetic of PyTorch.

A step gives every parameter a new array and leaves the old one unchanged, because a pass that
started with the old version finishes with it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphtheta.base.arguments import checked
from graphtheta.errors import ConfigError, FormatError, ShapeError

from ..autodiff.tape import Parameter
from ..parallel.buffers import by_blocks, empty

Rates = float | Sequence[float]

# numbers from which a compiled pass is worth that numba is imported, which takes longer than many
# programs run
COMPILED = 1 << 8


class Optimiser(ABC):
    """Turns gradients into new parameter values.

    Args:
        parameters: Their names must differ; the position is the name of one without.
        lr: Step size; one for all parameters, or one for each.
        weight_decay: Multiplied with ``Parameter.decay`` of each parameter; one for all, or one for
            each.

    Raises:
        ConfigError: A number is out of range, there is not one for each parameter, or two
            parameters have one name.
    """

    slots: tuple[str, ...] = ()

    @checked
    def __init__(self, parameters: Sequence[Parameter], lr: Rates, weight_decay: Rates = 0.0):
        self.parameters = list(parameters)
        self.lr = _each("lr", lr, len(self.parameters))
        self.weight_decay = _each("weight_decay", weight_decay, len(self.parameters))
        self.names = [p.name or str(i) for i, p in enumerate(self.parameters)]
        if len(set(self.names)) < len(self.names):
            twice = ", ".join(sorted(n for n in set(self.names) if self.names.count(n) > 1))
            raise ConfigError(
                f"two parameters have the same name: {twice}; give each parameter once, and with a"
                " name of its own"
            )
        self.steps = 0
        self._slots = [{s: np.zeros_like(p.value) for s in self.slots} for p in self.parameters]

    def step(self, gradients: Sequence[np.ndarray], factor: float = 1.0) -> None:
        """Replace the values of all parameters by their next version.

        Args:
            gradients: One per parameter, in their order and shape.
            factor: Multiplied with all step sizes.

        Raises:
            ShapeError: A gradient does not fit its parameter.
        """
        if len(gradients) != len(self.parameters):
            raise ShapeError(
                f"{len(gradients)} gradients were given for {len(self.parameters)} parameters; give"
                " one for each, in the order of the parameters"
            )
        for p, name, g in zip(self.parameters, self.names, gradients, strict=True):
            if np.shape(g) != p.shape:
                raise ShapeError(
                    f"the gradient of {name} has shape {list(np.shape(g))}, the parameter"
                    f" {list(p.shape)}"
                )
        self.steps += 1
        for p, slots, g, lr, decay in zip(
            self.parameters, self._slots, gradients, self.lr, self.weight_decay, strict=True
        ):
            # with numbers of Python and gradients of its type, a parameter and its slots keep it
            p.value = self._next(
                value=p.value,
                g=np.asarray(g, p.dtype),
                slots=slots,
                lr=lr * float(factor),
                decay=decay * p.decay,
            )

    @abstractmethod
    def _next(
        self,
        value: np.ndarray,
        g: np.ndarray,
        slots: dict[str, np.ndarray],
        lr: float,
        decay: float,
    ) -> np.ndarray:
        """The next value of one parameter; entries of ``slots`` are replaced."""

    def state(self) -> dict[str, Any]:
        """Everything a resumed run needs: ``steps`` and one array ``slot/NAME`` per slot and
        parameter.
        """
        arrays = {
            f"{s}/{name}": slots[s]
            for name, slots in zip(self.names, self._slots, strict=True)
            for s in self.slots
        }
        return {"steps": self.steps, **arrays}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state`` returned.

        Raises:
            FormatError: Entries are missing, unknown, or of another shape or type; nothing has been
                changed then.
        """
        expected = self.state()
        wrong = {"missing": set(expected) - set(state), "unknown": set(state) - set(expected)}
        for what, names in wrong.items():
            if names:
                raise FormatError(
                    f"optimiser state with {what} entries: {', '.join(sorted(names))}; "
                    "it belongs to another model or optimiser"
                )
        for name, old in expected.items():
            new = np.asarray(state[name])
            if name != "steps" and (new.shape != old.shape or new.dtype != old.dtype):
                raise FormatError(
                    f"optimiser state {name} is {new.dtype}{list(new.shape)}, expected"
                    f" {old.dtype}{list(old.shape)}"
                )
        self.steps = int(state["steps"])
        self._slots = [
            {s: np.array(state[f"{s}/{name}"]) for s in self.slots} for name in self.names
        ]


class SGD(Optimiser):
    """Stochastic gradient descent; weight decay is added to the gradient.

    Args:
        momentum: Share of the previous step that is kept.
        nesterov: Look ahead along the momentum.

    Raises:
        ConfigError: Nesterov without momentum.
    """

    @checked
    def __init__(
        self,
        parameters: Sequence[Parameter],
        lr: Rates,
        weight_decay: Rates = 0.0,
        momentum: float = 0.0,
        nesterov: bool = False,
    ):
        _check("momentum", momentum, 0 <= momentum < 1, "in [0, 1)")
        if nesterov and momentum == 0:
            raise ConfigError("nesterov needs a momentum above 0")
        self.slots = ("momentum",) if momentum else ()
        super().__init__(parameters, lr, weight_decay)
        self.momentum = float(momentum)
        self.nesterov = nesterov

    def _next(
        self,
        value: np.ndarray,
        g: np.ndarray,
        slots: dict[str, np.ndarray],
        lr: float,
        decay: float,
    ) -> np.ndarray:
        g = g + decay * value if decay else g
        if self.momentum:
            slots["momentum"] = self.momentum * slots["momentum"] + g
            g = g + self.momentum * slots["momentum"] if self.nesterov else slots["momentum"]
        return value - lr * g


class Adam(Optimiser):
    """Adam; weight decay is added to the gradient.

    Args:
        betas: Decay of the running mean and mean square of gradients.
        eps: Added to the root of the mean square.

    Source: https://arxiv.org/abs/1412.6980
    """

    slots = ("mean", "square")

    @checked
    def __init__(
        self,
        parameters: Sequence[Parameter],
        lr: Rates,
        weight_decay: Rates = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ):
        _check("betas", betas, all(0 <= b < 1 for b in betas), "in [0, 1)")
        _check("eps", eps, eps > 0, "above 0")
        super().__init__(parameters, lr, weight_decay)
        self.betas = float(betas[0]), float(betas[1])
        self.eps = float(eps)

    def _next(
        self,
        value: np.ndarray,
        g: np.ndarray,
        slots: dict[str, np.ndarray],
        lr: float,
        decay: float,
    ) -> np.ndarray:
        return self._moved(
            value=value, g=g + decay * value if decay else g, slots=slots, lr=lr, keep=1.0
        )

    def _moved(
        self, value: np.ndarray, g: np.ndarray, slots: dict[str, np.ndarray], lr: float, keep: float
    ) -> np.ndarray:
        """``keep`` times the value, less a step."""
        b1, b2 = self.betas
        divisor = (1 - b2**self.steps) ** 0.5
        step = lr / (1 - b1**self.steps)
        old = slots["mean"], slots["square"]
        if value.size >= COMPILED and all(
            x.dtype == value.dtype and x.flags.c_contiguous for x in (value, g, *old)
        ):
            # the passes of the other branch, with the same results, in one
            from .kernels import adam

            mean, square, out = (empty(value.shape, value.dtype) for _ in range(3))
            numbers = tuple(
                map(value.dtype.type, (b1, 1 - b1, b2, 1 - b2, divisor, self.eps, step, keep))
            )
            flat, before, after, to = (
                [x.reshape(-1) for x in each] for each in ((value, g), old, (mean, square), (out,))
            )
            by_blocks(
                lambda _, begin, end: adam(
                    *flat, tuple(before), tuple(after), numbers, *to, begin, end
                ),
                value.size,
                1,
            )
            slots["mean"], slots["square"] = mean, square
            return out
        slots["mean"] = b1 * old[0] + (1 - b1) * g
        slots["square"] = b2 * old[1] + (1 - b2) * np.square(g)
        return keep * value - step * (
            slots["mean"] / (np.sqrt(slots["square"]) / divisor + self.eps)
        )


class AdamW(Adam):
    """Adam with decoupled weight decay, which is not part of the gradient.

    Source: https://arxiv.org/abs/1711.05101
    """

    def _next(
        self,
        value: np.ndarray,
        g: np.ndarray,
        slots: dict[str, np.ndarray],
        lr: float,
        decay: float,
    ) -> np.ndarray:
        return self._moved(value=value, g=g, slots=slots, lr=lr, keep=1 - lr * decay)


class RMSprop(Optimiser):
    """Gradients divided by the root of their running mean square; weight decay is added to the
    gradient.

    Args:
        alpha: Decay of the running mean square.
        eps: Added to the root.
        momentum: Share of the previous step that is kept.
        centered: Subtract the square of the running mean of gradients, so that the root is their
            deviation.

    Source: https://www.cs.toronto.edu/~tijmen/csc321/slides/lecture_slides_lec6.pdf
    """

    @checked
    def __init__(
        self,
        parameters: Sequence[Parameter],
        lr: Rates,
        weight_decay: Rates = 0.0,
        alpha: float = 0.99,
        eps: float = 1e-8,
        momentum: float = 0.0,
        centered: bool = False,
    ):
        _check("alpha", alpha, 0 <= alpha < 1, "in [0, 1)")
        _check("eps", eps, eps > 0, "above 0")
        _check("momentum", momentum, 0 <= momentum < 1, "in [0, 1)")
        self.slots = (
            "square",
            *(("mean",) if centered else ()),
            *(("momentum",) if momentum else ()),
        )
        super().__init__(parameters, lr, weight_decay)
        self.alpha = float(alpha)
        self.eps = float(eps)
        self.momentum = float(momentum)
        self.centered = centered

    def _next(
        self,
        value: np.ndarray,
        g: np.ndarray,
        slots: dict[str, np.ndarray],
        lr: float,
        decay: float,
    ) -> np.ndarray:
        g = g + decay * value if decay else g
        more = 1 - self.alpha
        slots["square"] = self.alpha * slots["square"] + more * np.square(g)
        square = slots["square"]
        if self.centered:
            slots["mean"] = self.alpha * slots["mean"] + more * g
            # of equal gradients the difference may be a rounding error below 0
            square = np.maximum(square - np.square(slots["mean"]), 0)
        g = g / (np.sqrt(square) + self.eps)
        if self.momentum:
            slots["momentum"] = self.momentum * slots["momentum"] + g
            g = slots["momentum"]
        return value - lr * g


def _each(name: str, given: Rates, n: int) -> list[float]:
    """One number for each of n parameters."""
    numbers = [float(x) for x in (given if isinstance(given, Sequence) else [given] * n)]
    if len(numbers) != n:
        raise ConfigError(
            f"{name} holds {len(numbers)} numbers for {n} parameters; give one for each, or one"
            " for all"
        )
    for number in numbers:
        _check(name, number, number >= 0, "at least 0")
    return numbers


def _check(name: str, value: Any, fits: bool, allowed: str) -> None:
    if not fits:
        raise ConfigError(f"{name} = {value} is out of range; it must be {allowed}")
