"""The primitives that users call, with their gradient rules, and optimisers."""
