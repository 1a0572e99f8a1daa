"""Slurm as seen from outside a job: the script that is submitted, its submission, and what becomes of it. No torch."""
