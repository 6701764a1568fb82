"""What a run tells: its log and folder, the page and pictures of a report, and what a job will do."""
