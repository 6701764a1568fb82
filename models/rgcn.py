"""https://arxiv.org/abs/1703.06103 Relational graph convolution (Schlichtkrull et al., ESWC 2018).

    h'_v = sum over relations r, u -> v in r of  a_uv / c_vr  W_r h_u  +  W_0 h_v  +  b

c_vr is the number of in-edges of v in r ("mean"), or 1 ("sum"). The W_r are independent,
combinations of shared matrices (section 2.2, "basis"), or block-diagonal ("block"):

    W_r = sum over b of  comp_rb V_b            W_r = diag(Q_r1, ..., Q_rB)

Gather chooses a product by ``edge.relation``; the planner computes those that edges choose.
Transform multiplies bases and sparse features, and gather combines or chooses the products. Blocks
differ for each relation, so they are multiplied on the edge.

Departures: c_vr counts edges of the whole graph, also in sampled batches, where importance weights
make the sum an estimate of it. Inverse relations are edges of the graph
(``Graph.with_inverse_relations``).
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
from pydantic import Field

from graphtheta.errors import ConfigError

from ..engine.layer.layer import Layer
from ..ops.autodiff import init
from ..ops.autodiff.stored import holds_sparse
from ..ops.autodiff.tape import Parameter
from ..ops.functions.dense import matmul, to_dense
from ..ops.functions.elementwise import add
from ..ops.functions.embedding import embedding
from ..ops.functions.index import getitem
from ..ops.functions.shape import flatten
from ..ops.functions.shape import sum as sum_over
from .design import Design, NetworkOptions


def matrices(n: int, d_in: int, *d_out: int) -> Parameter:
    """Glorot matrices side by side, [d_in, n, *d_out], each scaled by its own widths."""
    return Parameter(np.stack([init.glorot((d_in, *d_out)) for _ in range(n)], axis=1))


class RGCN(Layer):
    """Convolution with a matrix for each relation.

    Args:
        d_in, d_out: Widths of input and output.
        relations: Number of relations; ``edge.relation`` is below it.
        bases: Number of matrices that the relations combine; 0 for independent matrices.
        blocks: Number of blocks on the diagonal of each matrix; 0 for full matrices.
        aggregator: "mean" or "sum", for each relation by itself.
        root: Whether to add W_0 h_v.
        bias: Whether to add a bias.

    Raises:
        ConfigError: Bases and blocks together, or blocks that do not divide the widths.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        relations: int,
        *,
        bases: int = 0,
        blocks: int = 0,
        aggregator: str = "mean",
        root: bool = True,
        bias: bool = True,
    ):
        if bases and blocks:
            raise ConfigError(
                f"RGCN: bases={bases} and blocks={blocks} exclude each other; choose one of them"
            )
        if blocks and (d_in % blocks or d_out % blocks):
            raise ConfigError(
                f"RGCN: {blocks} blocks do not divide the widths {d_in} and {d_out}; choose another"
                " number"
            )
        if blocks:
            shape = relations, *self._block(d_in // blocks, d_out // blocks, blocks)
            self.weight = Parameter(
                np.stack(
                    [_blocks(d_in // blocks, d_out // blocks, shape) for _ in range(d_in // blocks)]
                )
            )
        else:
            self.weight = matrices(bases or relations, d_in, d_out)
        self.comp = Parameter.glorot(relations, bases) if bases else None
        self.root = Parameter.glorot(d_in, d_out) if root else None
        self.bias = Parameter.zeros(d_out) if bias else None
        self.blocks = blocks
        self.aggregator = aggregator

    @staticmethod
    def _block(d_in: int, d_out: int, blocks: int) -> tuple[int, int]:
        # vectors of kernels run along the last axis
        return (d_out, blocks) if blocks >= d_out else (blocks, d_out)

    def transform(self, node: Any) -> dict[str, Any]:
        if not self.blocks:
            # edges cannot read sparse rows
            return {
                "z": (
                    node.h
                    if self.comp is None and not holds_sparse(node.h)
                    else matmul(node.h, self.weight)
                )
            }
        h = to_dense(node.h)
        inside = h.shape[-1] // self.blocks
        # [blocks, inside] -> [inside, blocks]
        order = np.arange(h.shape[-1]).reshape(self.blocks, inside).T.ravel()
        return {"z": h[..., order].reshape(inside, self.blocks)}

    def gather(self, edge: Any) -> Any:
        if self.aggregator == "sum":
            return self._message(edge) * edge.weight
        if self.direction == "both":
            raise ConfigError(
                "RGCN: a mean over the edges of a relation has one direction; add the inverse"
                " relations to the graph with graph.with_inverse_relations(), or choose"
                " aggregator='sum'"
            )
        return self._message(edge) * (
            edge.weight / (edge.in_degree if self.direction == "in" else edge.out_degree)
        )

    def _message(self, edge: Any) -> Any:
        """W_r h_u."""
        if self.comp is not None:
            return sum_over(embedding(self.comp, edge.relation) * edge.src.z, -2)
        if not self.blocks:
            z = edge.src.z
            return embedding(z if len(z.shape) > 2 else matmul(z, self.weight), edge.relation)
        across = self.weight.shape[-1] == self.blocks
        rows = [edge.src.z[..., i, :] for i in range(self.weight.shape[0])]
        return reduce(
            add,
            (
                embedding(getitem(self.weight, i), edge.relation)
                * (z[..., None, :] if across else z[..., None])
                for i, z in enumerate(rows)
            ),
        )

    def apply(self, node: Any, total: Any) -> Any:
        if self.blocks:
            width = total.shape[-2] * total.shape[-1]
            across = self.weight.shape[-1] == self.blocks
            order = np.arange(width).reshape(-1, self.blocks).T.ravel() if across else None
            total = flatten(total) if order is None else flatten(total)[..., order]
        total = total if self.root is None else add(total, matmul(node.h, self.root))
        return total if self.bias is None else add(total, self.bias)


def _blocks(d_in: int, d_out: int, shape: tuple[int, ...]) -> np.ndarray:
    """One row of all blocks of all relations."""
    limit = np.sqrt(6 / (d_in + d_out))
    return (init.glorot(shape) * (limit / np.sqrt(6 / (shape[0] + shape[1] * shape[2])))).astype(
        init.default_dtype()
    )


class BasisOptions(NetworkOptions):
    """Options of models with a matrix for each relation."""

    bases: int = Field(0, ge=0)
    """Matrices that the relations combine (basis decomposition); 0 for independent matrices."""


class RGCNOptions(BasisOptions):
    """Options of rgcn."""

    blocks: int = Field(0, ge=0)
    """Blocks on the diagonal of the matrices of rgcn (block-diagonal decomposition), which divide
    all widths; 0 for full matrices.
    """
    relation_sum: bool = False
    """Sum over the in-edges of each relation in rgcn, instead of their mean."""


def _layer(
    d_in: int, d_out: int, d_edge: int, last: bool, o: RGCNOptions, *, relations: int
) -> tuple[Layer, int]:
    layer = RGCN(
        d_in,
        d_out,
        relations,
        bases=o.bases,
        blocks=o.blocks,
        aggregator="sum" if o.relation_sum else "mean",
        bias=o.has_bias(last),
    )
    return layer, d_out


DESIGN = Design(_layer, RGCNOptions, relational=True)
