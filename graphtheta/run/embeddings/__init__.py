"""Learnable node features of a job: the tables, and how they are saved."""
