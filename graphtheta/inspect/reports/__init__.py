"""Reports: log and output folder of a run, HTML page with charts, execution plan of a job."""
