"""What looks at a job without training it: checks, plans, simulations, reports."""
