"""Measuring hardware: processes that hold a device and can be killed, on this node and on the others of a job."""
