"""Measured costs of work, which choices before a run are made from, in one table.

Counts alone decide with them, so that every worker decides alike and a choice repeats on other
machines. ``graphtheta plan`` measures the machine that it runs on, and takes from here only what
it cannot measure.
"""

from __future__ import annotations

# ---- time -------------------------------------------------------------------------------------
# multiply-adds of a core in a second: two with AVX-512 compute 70 to 110 x 10^9
FLOPS = 50_000_000_000
# multiply-adds in the time in which a sum reads and adds one number of another row: two cores add
# 6 to 10 x 10^9 gathered numbers a second
GATHERED = 12
# the same for a number that is packed, sent to another worker and read there: 30 between processes
# of one machine, several hundred over 10 Gbit/s
MOVED = 50
# the same to send the use of an edge to the worker of its view, and to sort it in there: 0.2
# microseconds
DEALT = FLOPS // 5_000_000
# the same for a phase of a superstep, forward and backward, besides its work: interpreter, start of
# kernels, rounds of messages, 2.5 milliseconds; and for dealing a group of views
PHASE = FLOPS // 400
GROUP = PHASE
# the same to find an edge of a mini-batch and to list it: 70 nanoseconds
LISTED = 3500
# seconds of a multiplication on one thread: in BLAS, and with an entry of sparse rows
MULTIPLIED = 3e-11
SPARSE_MULTIPLIED = 3e-10
# products that tiles compute: least multiplications, least numbers of the inner axis, and least
# columns; below, BLAS is faster or kernels take longer to load than they save
TILED_MULTIPLICATIONS = 1 << 23
TILED_INNER = 32
TILED_COLUMNS = 8
# bytes of a second factor that a core's second cache holds beside rows and outputs, so that each
# tile of a product reads all of it: half the cache where it is measured (Zen 5), all on Zen 3
TILED_CACHED = 1 << 19
# a backward pass computes about twice as much as the forward pass
PASSES = 3
# forward passes over the whole graph in the time of an evaluation, whose metrics take time, too:
# measured evaluations took 0.66 to 0.78 times as long as an update on the whole graph
EVALUATED = 2
# seconds that MPICH takes to send and receive a message between two processes of a machine, with
# what the interpreter does for a message
POST = 8e-6
# seconds of a message, a collective, their latency, a byte and a byte on the wire, where two
# workers cannot be started to measure them
MESSAGE = 3e-4
COLLECTIVE = 5e-5
LATENCY = 3e-5
BYTE = 4e-10
WIRE = 2e-10
# bytes per second that a worker sends, where a choice depends on totals of whole trainings
LINK = 1e9
# seconds for a million edges: of node partitioners and edge placements, and to compare pairs of
# them, which takes so many at least
PARTITIONING = {"hash": 0.02, "block": 0.02, "grem": 0.4, "libra": 0.2}
COMPARING = 1.5
COMPARING_AT_LEAST = 0.5

# ---- memory, in bytes unless another unit is named ----------------------------------------------
# values and gradients of a chunk of edges, and temporary arrays of primitives
CHUNKS_ALIVE = 4
# per edge while a view is built: positions, senders, marks, and the same of chosen edges
SEARCH_BYTES_PER_EDGE = 40
# per row and sampled neighbour while a view is built: shortlists, draws, and the ranks in messages
SAMPLE_BYTES = 64
# per edge and level: rows and positions, grouped by receiver and by sender, and importance weights
LIST_BYTES_PER_EDGE = 28
# of a view that is dealt: ids and hop of a node or an edge, with numbers for sorting
DEALT_BYTES = 40
# the same per use of an edge in a level
SORT_BYTES_PER_USE = 60
# gradients of intermediate values that are alive at once, in units of the widest value, at most
GRADIENTS_ALIVE = 4
# copies of each parameter: value, gradient, flat bucket and its sum, two optimiser slots and their
# successors, the best model
PARAMETER_COPIES = 9
# in a checkpoint: value, two optimiser slots, the best model
CHECKPOINT_COPIES = 4
# per pair of a batch while it is drawn, located and sorted, besides its scores and their gradients
DRAWN_PAIR_BYTES = 240
# the same per held-back pair, all of which stay in memory: their draws are made once
HELD_PAIR_BYTES = 160
# per pair of a query and a node that are ranked at a time
RANKED_PAIR_BYTES = 144
