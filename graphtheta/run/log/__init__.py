"""The files of a run that say how it went, and its progress on the screen."""
