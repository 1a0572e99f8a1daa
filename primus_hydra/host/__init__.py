"""What this machine is: accelerators, cores, and the programs that show them. Never imports torch."""
