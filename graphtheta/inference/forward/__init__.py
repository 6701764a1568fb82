"""Inference over a whole graph layer by layer, under a memory limit, with values of layers in
files.
"""
