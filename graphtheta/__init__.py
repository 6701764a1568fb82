"""GraphTheta: distributed graph learning on CPUs."""
