"""Stores: a graph as a folder of checksummed arrays that training maps into memory."""
