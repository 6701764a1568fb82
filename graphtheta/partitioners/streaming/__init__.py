"""Edges that all workers read together: degrees, neighbourhoods, tables by blocks of ids, rounds."""
