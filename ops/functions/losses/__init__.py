"""Losses, and what is made for losses of users."""
