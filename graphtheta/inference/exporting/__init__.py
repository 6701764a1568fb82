"""Models of other libraries from trained ones."""
