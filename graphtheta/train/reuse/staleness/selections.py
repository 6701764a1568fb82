"""Parts of levels: the edges from some of the sending rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphtheta.engine.view.level import Selection


def from_senders(
    s: Selection,
    keep: np.ndarray,
    *,
    number: np.ndarray | None = None,
    n_senders: int | None = None,
    weight: np.ndarray | None = None,
) -> Selection:
    """The edges of a selection from some of the rows that may send.

    Args:
        s: The selection.
        keep: The sending rows to keep, [n_senders] bool.
        number: New numbers of the rows that are kept, [n_senders]; None leaves numbers as they are.
        n_senders: Number of rows that may send then; None if it is unchanged.
        weight: Factor of the importance weights of the edges of each sending row, [n_senders]; None
            for 1.
    """
    on = keep[s.other]
    chosen = np.flatnonzero(on).astype(np.int32)
    senders = s.other[chosen]
    own = None if s.weight is None else s.weight[chosen]
    if weight is not None:
        own = weight[senders] if own is None else own * weight[senders]
    return replace(
        s,
        ptr=np.concatenate(([0], np.cumsum(on)))[s.ptr],
        other=senders if number is None else number[senders],
        n_senders=s.n_senders if n_senders is None else n_senders,
        edges=chosen if s.edges is None else s.edges[chosen],
        weight=own,
        grouped=None,
    )
