"""What can be known of a job before it is queued: whether it is legal, fits, and how fast it should be. No torch."""
