"""One microbatch in upstream's loop: from what its data loader yields to a loss that upstream checks.

Model call and loss are those of `backend=megatron`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from megatron.core.rerun_state_machine import get_rerun_state_machine

from primus_hydra.backends.megatron.batches import Batch
from primus_hydra.backends.megatron.forward import LOSS_SUM, ForwardStep, LossFunction
from primus_hydra.backends.megatron.masks import documents_from_positions


class UpstreamForwardStep:
    """The function that upstream's schedules call for every microbatch.

    `checks_loss` and `checks_spikes` are upstream's switches: a loss that is not a number, or jumps, is computed again
    to tell a fault of the hardware from one of the training.
    """

    def __init__(
        self, device: torch.device, *, pack_documents: bool, checks_loss: bool, checks_spikes: bool = False
    ) -> None:
        self._forward = ForwardStep(device, pack_documents=pack_documents)
        self._pack_documents = pack_documents
        self._checks_loss = checks_loss
        self._checks_spikes = checks_spikes

    def __call__(self, items: Iterator[Mapping[str, torch.Tensor]], chunk: Any) -> tuple[torch.Tensor, LossFunction]:
        """Return the output of the chunk, and the function that makes a loss of it (used on the last stage only)."""
        batch = self._batch(next(items))
        output, loss = self._forward(iter((batch,)), chunk)
        return output, self._checked(loss)

    def _batch(self, item: Mapping[str, torch.Tensor]) -> Batch:
        positions = item["position_ids"]
        return Batch(
            tokens=item["tokens"],
            labels=item["labels"],
            loss_mask=item["loss_mask"],
            position_ids=positions,
            documents=documents_from_positions(positions) if self._pack_documents else None,
            attention_mask=item.get("attention_mask"),
        )

    def _checked(self, function: LossFunction) -> LossFunction:
        def checked(output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
            loss, tokens, report = function(output)
            self._check(report[LOSS_SUM][0])
            return loss, tokens, report

        return checked

    def _check(self, loss: torch.Tensor) -> None:
        machine = get_rerun_state_machine()
        if self._checks_loss:
            for rejects, what in ((torch.isnan, "NaN"), (torch.isinf, "infinite")):
                message = f"found {what} in the loss of the local forward"
                machine.validate_result(result=loss, rejection_func=rejects, message=message, tolerance=0.0, fatal=True)
        if self._checks_spikes:
            machine.validate_result(
                result=loss, rejection_func=self._is_spike, message="the loss jumped", tolerance=0.0, fatal=False
            )

    @staticmethod
    def _is_spike(loss: torch.Tensor) -> bool:
        jumped: bool = get_rerun_state_machine().is_unexpectedly_large(
            result=loss, threshold=10, context="loss", num_samples=100, resample=False
        )
        return jumped
