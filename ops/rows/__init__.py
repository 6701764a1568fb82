"""Rows of arrays by number: copied, added, or read where they are stored."""
