"""The memory of workers, bounded before it is allocated."""
