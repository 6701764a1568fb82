"""The keys of a job: as Python arguments, YAML and flags."""
