"""Graph algorithms on partitions: PageRank, components, paths, cores, triangles, communities,
random walks.
"""
