"""`backend=megatron_training`: upstream's own loop, `megatron.training.pretrain`, through its own arguments.

The model, the data, the learning rates and the checkpoints' places are those of `backend=megatron`; the loop, the
arguments and what is in a checkpoint are upstream's.
"""
