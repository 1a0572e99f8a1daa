"""What ranks say to each other during a microbatch, in seconds that are not hidden behind computation."""

from __future__ import annotations

from dataclasses import dataclass, field

from primus_hydra.plan.rates import Group, Rates, exchange_seconds, gather_seconds, group_of, reduce_seconds
from primus_hydra.plan.setting import Setting
from primus_hydra.plan.state import layer_size

OVERLAP = 0.9
"""Part of the computation beside them behind which collectives hide (stated: some always wait for the first bytes)."""


@dataclass
class Piece:
    """Seconds of a layer or an end: forward, backward, and by part."""

    forward: float = 0.0
    backward: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)

    def add(self, part: str, forward: float, backward: float) -> None:
        """Add seconds of one part."""
        self.forward += forward
        self.backward += backward
        self.parts[part] = self.parts.get(part, 0.0) + forward + backward

    def times(self, count: float) -> Piece:
        """Return so many of it."""
        parts = {name: seconds * count for name, seconds in self.parts.items()}
        return Piece(self.forward * count, self.backward * count, parts)


def tensor_parallel(setting: Setting, rates: Rates, piece: Piece) -> None:
    """Two gathers and two scatters of the activations in each direction (Korthikanti et al. 2022, 4.2.2)."""
    if setting.tp == 1:
        return
    group = group_of(setting.tp, 1, setting.ranks_per_node)
    whole = setting.tokens * setting.model.hidden_size * setting.element
    seconds = 4 * gather_seconds(rates, group, whole)
    again = seconds / 2 if setting.recompute == "full" else 0.0
    piece.add("tensor parallel", seconds, seconds + again)


def context_parallel(setting: Setting, rates: Rates, piece: Piece, attention: float) -> None:
    """Keys and values of all ranks pass by, beside the attention that they feed (Liu et al. 2023, "Ring Attention")."""
    if setting.cp == 1:
        return
    model, group = setting.model, group_of(setting.cp, setting.tp, setting.ranks_per_node)
    width = 2 * model.kv_heads * model.head_width / setting.tp * setting.element
    seconds = gather_seconds(rates, group, setting.tokens * setting.cp * width)
    hidden = OVERLAP * attention if setting.megatron else 0.0
    piece.add("context", max(0.0, seconds - hidden), 2 * max(0.0, seconds - hidden))


def expert_parallel(setting: Setting, rates: Rates, piece: Piece) -> None:
    """Tokens go to their experts and come back, in each direction."""
    if setting.ep == 1:
        return
    group = group_of(setting.ep, 1, setting.ranks_per_node)
    copies = setting.model.num_experts_per_tok or 1
    sent = setting.tokens * copies * setting.model.hidden_size * setting.element / setting.split_tokens
    seconds = 2 * exchange_seconds(rates, group, sent)
    piece.add("experts", seconds, seconds)


def data_parallel(setting: Setting, rates: Rates, sparse: bool, piece: Piece, computed: tuple[float, float]) -> None:
    """FSDP2 gathers a layer's parameters in each direction and scatters its gradients, beside the computation.

    Under a pipeline parameters stay, and gradients are reduced once: that is counted at the end of the step.
    """
    if setting.pp > 1 or setting.dp * setting.cp == 1:
        return
    local = layer_size(setting, sparse)
    group = data_group(setting)
    gather = gather_seconds(rates, group, local * setting.element) if setting.sharding == "full" else 0.0
    scatter = gather_seconds(rates, group, local * 4) if setting.sharding == "full" else 0.0
    if setting.dp_replicate > 1 or setting.sharding == "none":
        copies = setting.dp if setting.sharding == "none" else setting.dp_replicate
        shard = local * 4 / (1 if setting.sharding == "none" else setting.dp_shard * setting.cp)
        stride = setting.tp * setting.cp * (1 if setting.sharding == "none" else setting.dp_shard)
        scatter += reduce_seconds(rates, group_of(copies, stride, setting.ranks_per_node), shard)
    again = gather if setting.reshard else 0.0
    forward = max(0.0, gather - OVERLAP * computed[0])
    backward = max(0.0, again + scatter - OVERLAP * computed[1])
    piece.add("data parallel", forward, backward)


def data_group(setting: Setting) -> Group:
    """Return the ranks that share parameters or the optimizer."""
    shards = setting.dp_shard * setting.cp if not setting.megatron else setting.dp * setting.cp
    return group_of(shards, setting.tp, setting.ranks_per_node)
