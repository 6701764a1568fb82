"""Training and evaluation: steps, versions of parameters, sums of gradients, metrics."""
