"""Which views are made in an epoch: strategies, batches in order, and the targets of tasks."""
