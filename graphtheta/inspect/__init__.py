"""Inspection of jobs without training them: checks, plans, simulations, reports."""
