"""Edges that all workers read together: degrees, neighbourhoods, tables by id blocks, rounds."""
