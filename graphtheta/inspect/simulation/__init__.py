"""Jobs on many machines: what they count there, in time, and what limits them."""
