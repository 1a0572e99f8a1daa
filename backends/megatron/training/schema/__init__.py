"""What upstream's argument parser takes, one data file per release, and the script that writes it."""
