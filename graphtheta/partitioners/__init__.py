"""Partitioners: node partitioners and edge placements by published rules, and a report that
compares them.
"""
