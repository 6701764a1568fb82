"""What differs between two objects that one constructor makes with equal arguments."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.engine.layer.module import made_again
from graphtheta.ops.autodiff.init import init_scope
from graphtheta.run.agreement.digest import model_digests


def differences(layer: Layer | Model) -> list[str]:
    """Names of parameters, arrays and numbers in attributes that differ if the layer is made twice.

    Generators among the arguments are in the same state both times, those of modules go on. What
    depends on the process, such as the order of a set of texts, is the same both times and not
    found. There are no differences where the layer cannot be made again.
    """
    make = made_again(layer)
    if make is None:
        return []
    digests = []
    with _random_state():
        for _ in range(2):
            try:
                with init_scope(0):
                    digests.append(model_digests(make()))
            except Exception:
                # a constructor may refuse to run again, or an argument to be copied, by any error
                return []
    first, second = digests
    return [name for name in first | second if first.get(name) != second.get(name)]


@contextmanager
def _random_state() -> Iterator[None]:
    """Leaves the generators of NumPy and Python as they were."""
    of_numpy = np.random.get_state()
    of_python = random.getstate()
    try:
        yield
    finally:
        np.random.set_state(of_numpy)
        random.setstate(of_python)
