"""Recall and NDCG of the links of each source among all nodes."""
