"""Weights between Hugging Face's layout and the backends' checkpoints, in a process of their own.

`task=convert` starts `python -m primus_hydra.convert REQUEST`; only that process imports torch. Tensors are streamed:
one is built from its pieces, written, and let go, so memory does not grow with the model.
"""
