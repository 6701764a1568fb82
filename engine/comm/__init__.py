"""Messages between workers: communicators, transports, channels, ordered sums, and what is counted of them.

Nothing here knows graphs. ``communicator`` is the interface; ``serial``, ``simulated`` and ``delayed`` implement it,
and so does ``mpi`` in ``engine.runtime``.
"""
