"""Fields of a graph made of columns of a table: which values they accept, and what they write."""
