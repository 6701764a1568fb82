"""Threads, and memory that is used again."""
