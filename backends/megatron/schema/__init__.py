"""What Megatron's configuration classes hold, one data file per release, and the script that writes it."""
