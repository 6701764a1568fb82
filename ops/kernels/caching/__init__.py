"""Compiled state machines of caches: which slot a row is stored in, and which row is evicted."""
