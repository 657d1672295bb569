"""Work: jobs that are enqueued, claimed and run, each by one claimant at a time."""
