"""Measures of quality: sums that add up over workers, and values computed from them."""
