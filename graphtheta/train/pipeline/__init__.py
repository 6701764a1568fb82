"""The number of pipelined mini-batches, chosen by a profile of the first steps."""
