"""Stores made of stores: some of their nodes and edges, with columns that do not change shared on
disk.
"""
