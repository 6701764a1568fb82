"""The text of kernels: lines by section, numbers of a row as vectors, and values that outlive a
line. It knows no operation.
"""
