"""Tables of edges and nodes into a store, by all workers together."""
