"""Stored values of nodes and edges: columns with a role, read by rows."""
