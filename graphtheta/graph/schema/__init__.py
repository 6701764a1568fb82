"""What a trained model expects of a graph: widths, columns, names of codes, scales; and other
graphs brought into that form.
"""
