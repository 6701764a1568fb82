"""Outputs of a trained model: of whole graphs, of grown ones, as files, in other systems."""
