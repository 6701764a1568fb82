"""Scopes of traces, in which the next call of the same gather finds the expressions of the last one.

A gather is called in every pass (``symbolic``). A call that applies the same operations to the same
operands finds every expression in the scope of the last call: no shape is inferred, no rule is looked
up, and its program is known without the structure of the trace. One that does something else makes
the expressions that it lacks.

A scope belongs to one layer and to columns of the same names, shapes and types, and one call at a
time takes it. It is kept while its operands are parameters and constants: values of a pass must not
outlive it.
"""
from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from threading import Lock
from typing import Any
from weakref import ref

import numpy as np

from ..autodiff.expr import Tracer
from ..autodiff.tape import Parameter
from .symbolic import Schema, SymbolicTrace, record

# scopes of a layer, expressions of a scope, and calls one after another that read other operands each
MOST_SCOPES, MOST_EXPRESSIONS, MOST_CHANGES = 8, 1024, 4
KEPT = (Parameter, np.ndarray, np.generic, bool, int, float)


class TraceCache:
    """Traces the gather of layers in scopes that it keeps."""

    def __init__(self) -> None:
        # by id of the layer, which may have no hash, and columns; a number of changes in place of a scope
        self._scopes: dict[int, tuple[ref[Any], dict[Any, Tracer | int]]] = {}
        self._lock = Lock()

    def record(self, layer: Any, gather: Callable[[Any], Any], nodes: Schema, edges: Schema, sums: Any, owner: str,
               sparse: Collection[str], stored: Collection[str]) -> tuple[SymbolicTrace, Callable[[], None]]:
        """``symbolic.record`` in the scope of an earlier call, if there is one.

        Args:
            layer: The object that the gather belongs to.
            gather, nodes, edges, sums, owner, sparse, stored: See there.

        Returns:
            The trace, and a function to call when its program has been found: the scope may serve the next call then.
        """
        key = tuple(nodes.items()), tuple(edges.items()), tuple(sparse), tuple(stored)
        with self._lock:
            if id(layer) not in self._scopes:
                self._scopes[id(layer)] = ref(layer, partial(self._forget, id(layer))), {}
            of_layer = self._scopes[id(layer)][1]
            found = of_layer.pop(key, 0)
        scope = found if isinstance(found, Tracer) and found.current() else None
        traced = record(gather, nodes, edges, sums, owner, sparse, stored, scope)
        changes = scope.memo.get("changes", 0) + 1 if scope is not None and traced.tracer is not scope else 0

        def keep() -> None:
            tracer = traced.tracer
            if isinstance(found, int) and found >= MOST_CHANGES:
                kept: Tracer | int = found
            elif changes >= MOST_CHANGES:
                kept = changes
            elif traced.planned or tracer.size > MOST_EXPRESSIONS or not all(isinstance(x, KEPT) for x in tracer.operands):
                return
            else:
                tracer.memo["changes"] = changes
                kept = tracer
            with self._lock:
                if len(of_layer) >= MOST_SCOPES:
                    of_layer.clear()
                of_layer[key] = kept

        return traced, keep

    def _forget(self, layer: int, _: Any) -> None:
        self._scopes.pop(layer, None)
