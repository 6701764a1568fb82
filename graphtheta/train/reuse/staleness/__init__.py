"""Approximations that reuse old values: stale halo exchange, histories of embeddings, and the audit
of both.
"""
