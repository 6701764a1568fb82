"""Random programs of rows on a tape, computed as large values are and as small ones.

    python bench/fuzz_tapes.py --programs 2000 --seed 1

A program draws columns (learned, constant, and of stores: codes of int8, float16, float32 or
bfloat16 rows, in memory or read, in order or listed), functions of one and two values, slices,
products, divisions, checkpointed segments, arrays that their owner changes after the call, values
that are read in full at some place, and numbers that are not finite or very small. Results and
gradients of all columns and parameters are computed twice. In float64 and float32, values are
deferred, with products by tiles that compute and decode a few rows at a time, and computed at once
from arrays in memory; they must be equal but for rounding. With values of bfloat16, products read
blocks and then stored rows; the bits must be equal. Else there is a fault, and the exit code is 1.
Arrays of the first computation end where a page of memory ends, and the process ends if a kernel
reads or writes behind.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any
from unittest.mock import patch

import equality_ways
import numpy as np
import seeds

import graphtheta.ops as gt
from graphtheta.base.bfloat16 import is_wide
from graphtheta.ops import Parameter, RowSpace, Tape, Var, dtype_scope
from graphtheta.ops.autodiff import fusion
from graphtheta.ops.autodiff.checkpoint import run_segment
from graphtheta.ops.autodiff.fusion import Deferred
from graphtheta.ops.autodiff.stored import StoredRows
from graphtheta.ops.functions.rows import prefix
from graphtheta.ops.parallel.buffers import empty
from graphtheta.ops.rows import computed, products
from graphtheta.ops.rows.bfloat16 import expanded, rounded
from graphtheta.ops.rows.row_list import RowList

Rng = np.random.Generator
ROWS = (0, 1, 2, 7, 33, 130, 700)
WIDTHS = (1, 2, 5, 16, 17, 24, 40, 64)
# exponents of 2 of the divisors of programs with special numbers, of which the reciprocal is
# infinite or subnormal
DIVISORS = {"float64": (-1060, 1022), "float32": (-140, 126)}
# numbers so large may be infinite where they are rounded otherwise
HUGE = {"float64": 1e300, "float32": 1e30}
# largest relative differences of float types
NEAR = {"float64": 1e-9, "float32": 2e-3}
COLUMNS = ("learned", "constant", "codes", "float16", "listed", "lent", "short", "short listed")
UNARY: tuple[Callable[[Any], Any], ...] = (
    gt.relu,
    gt.tanh,
    gt.sigmoid,
    gt.elu,
    gt.leaky_relu,
    gt.softplus,
    lambda x: gt.dropout(x, 0.3),
    lambda x: -x,
    lambda x: x * 0.5 + 1,
    lambda x: gt.clip(x, -1.5, 1.5),
    lambda x: x[..., : max(1, x.shape[1] // 2)],
    lambda x: x[..., x.shape[1] // 2 :],
    lambda x: x[..., ::-1],
    lambda x: gt.sum(x, -1, keepdims=True) * (1 / x.shape[1]),
    lambda x: gt.max(x, -1, keepdims=True),
)
BINARY: tuple[Callable[[Any, Any], Any], ...] = (
    lambda x, y: x + y,
    lambda x, y: x * y * 0.5,
    lambda x, y: x - y,
    gt.maximum,
    gt.minimum,
)
# of the values that the result reads besides the last
SHARE = 0.3
# of the programs in whose columns are numbers that are not finite, and those near to 0
SPECIAL = 0.3
# of the values that are read in full before and after a step
FULL = 0.05, 0.2
# the kinds of steps, and how often they are drawn
STEPS = {
    "unary": 6,
    "binary": 3,
    "product": 5,
    "vector": 3,
    "changed": 2,
    "rows": 1,
    "divided": 2,
    "concat": 1,
    "norm": 1,
    "prefix": 1,
    "segment": 1,
}


class Program:
    """A program of a seed, which can run several times.

    Args:
        seed: Of all choices.
    """

    def __init__(self, seed: int):
        self.seed = seed
        rng = np.random.default_rng(seed)
        self.n = int(rng.choice(ROWS))
        self.values = str(rng.choice(["float64", "float32", "bfloat16"]))
        self.dtype = "float64" if self.values == "float64" else "float32"
        self.columns = [
            (str(rng.choice(COLUMNS)), int(rng.choice(WIDTHS))) for _ in range(rng.integers(1, 4))
        ]
        self.steps = int(rng.integers(1, 12))
        self.is_special = self.values != "bfloat16" and rng.random() < SPECIAL

    def run(self, stored: bool) -> dict[str, np.ndarray]:
        """Results and gradients, with columns of stores or with their numbers in memory."""
        rng = np.random.default_rng((self.seed, 1))
        parameters: list[Parameter] = []
        with dtype_scope(self.dtype), Tape(seed=self.seed) as tape:
            tape.dtype = np.dtype(self.dtype)
            space = RowSpace(rng.permutation(self.n) * 3)
            columns = [self._column(rng, *column, space, stored) for column in self.columns]
            with tape.storing(self.values == "bfloat16"):
                values = self._steps(rng, list(columns), parameters, self.steps)
                # a value that is read here would be in memory
                values = [v for v in values[:-1] if rng.random() < SHARE] + values[-1:]
                n = min(v.shape[0] for v in values)
                out = sum(prefix(v, n) @ self._parameter(rng, parameters, v, 3) for v in values)
            numbers = {"out": np.array(out.value)}
        seed = np.cos(np.arange(out.value.size)).reshape(out.shape).astype(self.dtype)
        if tape.nodes:
            grads = tape.backward(out, seed)
            for i, x in enumerate([*columns, *parameters]):
                if (g := grads.of(x)) is not None:
                    numbers[f"gradient {i} {x.shape}"] = np.asarray(g)
        return numbers

    def _steps(
        self, rng: Rng, values: list[Any], parameters: list[Parameter], steps: int
    ) -> list[Any]:
        for _ in range(steps):
            kind = rng.choice(list(STEPS), p=np.array(list(STEPS.values())) / sum(STEPS.values()))
            values += self._step(rng, str(kind), values, parameters)
        return values

    def _step(
        self, rng: Rng, kind: str, values: list[Any], parameters: list[Parameter]
    ) -> list[Any]:
        """What a step of a kind adds to the values; some read their argument in full."""
        x = values[max(rng.integers(len(values), size=2))]
        before, after = rng.random(2) < FULL
        if before:
            np.asarray(x.value).sum()
        results = self._computed(rng, kind, x, values, parameters)
        if after:
            np.asarray(x.value).sum()
        return results

    def _computed(
        self, rng: Rng, kind: str, x: Any, values: list[Any], parameters: list[Parameter]
    ) -> list[Any]:
        """What a step of a kind computes of a value."""
        width = x.shape[1]
        if kind == "unary":
            return [UNARY[rng.integers(len(UNARY))](x)]
        if kind == "product":
            return [x @ self._parameter(rng, parameters, x, int(rng.choice(WIDTHS)))]
        if kind == "vector":
            p = Parameter(rng.standard_normal(width).astype(self.dtype))
            parameters.append(p)
            return [x * p if rng.random() < 0.5 else gt.relu(x + p)]
        if kind == "changed":
            constant = rng.standard_normal(width).astype(self.dtype)
            y = x * constant if rng.random() < 0.5 else gt.maximum(x, constant)
            constant *= 3
            return [y]
        if kind == "rows":
            return [x * Var(copied(rng.standard_normal(x.shape).astype(self.dtype)), x.space)]
        if kind == "divided":
            # numbers of the same size, so that quotients are neither
            size = 2.0 ** int(rng.choice(DIVISORS[self.dtype])) if self.is_special else 1.0
            x = x * size if self.is_special else x
            return [x / self._divisor(rng, x, parameters, size)]
        if kind == "norm":
            scale, shift = (Parameter(rng.standard_normal(width).astype(self.dtype)) for _ in "ab")
            parameters.extend((scale, shift))
            return [gt.layer_norm(x, scale, shift) if width > 2 else x * scale + shift]
        if kind == "prefix":
            return [prefix(x, int(rng.integers(min(1, x.shape[0]), x.shape[0] + 1)))]
        if kind == "segment":
            return self._segment(rng, x)
        y = values[rng.integers(len(values))]
        n = min(x.shape[0], y.shape[0])
        x, y = prefix(x, n), prefix(y, n)
        if kind == "concat":
            return [gt.concat([x, y])]
        m = min(x.shape[1], y.shape[1])
        x, y = (v if v.shape[1] == m else v[..., :m] for v in (x, y))
        return [BINARY[rng.integers(len(BINARY))](x, y)]

    def _segment(self, rng: Rng, x: Any) -> list[Any]:
        """A checkpointed segment of two functions and a product."""
        w = Parameter(rng.standard_normal((x.shape[1], 18)).astype(self.dtype) * 0.3)
        one, two = (UNARY[rng.integers(10)] for _ in "ab")
        outputs: list[Any] = []

        def run() -> list[Any]:
            h = one(two(x))
            return [h, gt.relu(h @ w)]

        run_segment(lambda: outputs.extend(run()) or outputs, run)
        return outputs

    def _divisor(self, rng: Rng, x: Any, parameters: list[Parameter], size: float) -> Any:
        """A number, or a parameter, or one or more numbers of each row that are learned."""
        shape = ((), x.shape[1:], (x.shape[0], 1), x.shape)[rng.integers(4)]
        numbers = np.array(rng.uniform(0.5, 2, shape)) * rng.choice([-1.0, 1.0])
        numbers = (numbers * size).astype(self.dtype)
        if not shape:
            return float(numbers)
        if len(shape) > 1:
            return Var(copied(numbers), x.space, needs_grad=True)
        parameters.append(Parameter(numbers))
        return parameters[-1]

    def _parameter(self, rng: Rng, parameters: list[Parameter], x: Any, width: int) -> Parameter:
        p = Parameter(
            rng.standard_normal((x.shape[1], width)).astype(self.dtype) / x.shape[1] ** 0.5
        )
        parameters.append(p)
        return p

    def _column(self, rng: Rng, kind: str, width: int, space: RowSpace, stored: bool) -> Any:
        """Rows of a kind; plain numbers in memory if not ``stored``."""
        x = rng.standard_normal((self.n + 3, width)).astype(self.dtype)
        rows = rng.permutation(self.n + 3)[: self.n]
        if kind.startswith("short") and not (
            self.values == "bfloat16" and is_wide((width,), x.dtype)
        ):
            kind = "listed"
        if self.is_special:
            odd = rng.random(x.shape)
            for i, number in enumerate((np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-40)):
                x[(odd >= 0.02 * i) & (odd < 0.02 * (i + 1))] = number
        decode: Any = lambda block: block.astype(self.dtype)
        narrow = x.astype(np.float16)
        if kind == "codes":
            scale = np.linspace(0.01, 0.02, width)
            narrow = rng.integers(-128, 128, x.shape).astype(np.int8)
            decode = lambda block: (block * scale).astype(self.dtype)
        if kind in ("codes", "float16"):
            x = decode(narrow)
            narrow = narrow[rows]
        listed = kind in ("listed", "short listed")
        short = x
        if kind.startswith("short"):
            short = rounded(x if listed else x[rows])
            x = expanded(rounded(x))
        x, narrow, short = map(copied, (x, narrow, short))
        if kind in ("learned", "constant") or not stored:
            return Var(copied(x[rows]), space, needs_grad=kind == "learned")
        return StoredRows(
            read=lambda n: x[rows[:n]],
            shape=(self.n, width),
            dtype=self.dtype,
            listed=RowList(x, rows) if listed else None,
            space=space,
            name="x",
            lent=RowList(x, rows) if kind == "lent" else None,
            short=(lambda n: RowList(short, rows[:n]) if listed else short[:n])
            if kind.startswith("short")
            else None,
            decoding=(lambda n: lambda begin, end: decode(narrow[:n][begin:end]))
            if kind in ("codes", "float16")
            else None,
        )


def copied(x: np.ndarray) -> np.ndarray:
    """A copy in memory of the engine."""
    out = empty(x.shape, x.dtype)
    out[...] = x
    return out


def deferred() -> Any:
    """Functions also of few rows are deferred."""
    return patch.multiple(fusion, SMALLEST=1)


def tiled() -> Any:
    """Tiles compute products also of few rows."""
    return patch.multiple(products, TILED_MULTIPLICATIONS=1, _ROWS=130)


def not_lent(kind: type[Var]) -> Any:
    """Products read values of a kind in memory only."""
    return patch.object(kind, "lent", lambda self: None)


def compare(program: Program) -> None:
    """Compute a program in both ways.

    Raises:
        AssertionError: The numbers differ.
    """
    if program.values == "bfloat16":
        with deferred(), tiled(), equality_ways.guarded(), patch.multiple(computed, NEAR=1):
            blocks = program.run(True)
        with deferred(), tiled(), not_lent(Deferred), not_lent(StoredRows):
            whole = program.run(True)
    else:
        with equality_ways.as_large(True):
            blocks = program.run(True)
        whole = program.run(False)
    if blocks.keys() != whole.keys():
        raise AssertionError(f"{sorted(blocks)} and {sorted(whole)}")
    for name, y in whole.items():
        x = blocks[name]
        if x.shape != y.shape or x.dtype != y.dtype:
            raise AssertionError(f"{name}: {x.dtype}{x.shape} and {y.dtype}{y.shape}")
        finite = np.isfinite(y)
        # a gradient is a sum, in which infinity and -infinity may meet earlier or later
        other = (x != y) & ~(np.isnan(x) & np.isnan(y)) & ~finite
        if name != "out" or program.dtype == "float32":
            other &= np.abs(x) < HUGE[program.dtype]
        if other.any():
            raise AssertionError(f"{program.values}, {name}: other numbers where one is not finite")
        # likewise, what is infinite may be rounded to a huge number
        finite &= np.isfinite(x) | (np.abs(y) < HUGE[program.dtype])
        x, y = x[finite], y[finite]
        apart = float(np.abs(x - y).max(initial=0) / max(1e-30, np.abs(y).max(initial=1e-3)))
        if not apart <= NEAR.get(program.values, 0):
            raise AssertionError(f"{program.values}, {name}: {apart:.2g} apart")


def refused(seed: int) -> bool:
    """Compare the program of a seed; none is refused."""
    with np.errstate(all="ignore"):
        compare(Program(seed))
    return False


def search(numbers: Iterable[int]) -> seeds.Outcomes:
    """How many programs have equal numbers, and the faults."""
    return seeds.outcomes(numbers, refused)


if __name__ == "__main__":
    sys.exit(seeds.main(__doc__, "programs", 1000, search))
