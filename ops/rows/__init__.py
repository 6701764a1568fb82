"""Rows of arrays by number: copied, added, multiplied, or read where they are stored."""
