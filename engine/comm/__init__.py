"""Messages between ranks: communicators, channels, sums in rank order, and ledgers.

Nothing here depends on graphs. ``communicator`` defines the interface; ``serial``, ``simulated``,
``delayed`` and ``engine.runtime.mpi`` implement it.
"""
