"""The functions that users call, as primitives with their gradient rules."""
