"""Dense products of matrices: tiles of outputs that are held in registers."""
