"""``gt.check``: tests of a user's own layers."""
