"""Names of the files of a run in its folder, beside ``job.yaml``, weights, timelines and checkpoints."""
from __future__ import annotations

METRICS_FILE = "metrics.jsonl"
RESULT_FILE = "result.json"
PROFILE_FILE = "profile.json"
PREDICTIONS_FILE = "predictions.npz"
