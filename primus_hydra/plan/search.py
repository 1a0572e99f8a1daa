"""All legal layouts of a job over its ranks, with batch sizes and recomputation; what fits, fastest first.

The global batch, the sequence and the number of nodes stay what the job says. A pipeline's idle time is taken by its
closed form here; the winners' schedules are run. Of a pipeline's stages the first and the last are looked at: the first
keeps most microbatches, the last the logits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from primus_hydra.config.nearest import even_split, weighted_split
from primus_hydra.plan.legality import legal
from primus_hydra.plan.memory import GIB, stage_memory
from primus_hydra.plan.rates import Rates
from primus_hydra.plan.setting import Setting, Sharding
from primus_hydra.plan.state import State, state_of
from primus_hydra.plan.throughput import throughput_of

MICRO_BATCHES = (1, 2, 4, 8, 16)
RECOMPUTE = ("none", "selective", "full")
_CHUNKS = (1, 2, 4, 5, 8, 10)
_MOST_CP = 8


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One layout that is legal and fits: its setting, memory of the fullest rank, and projected speed."""

    setting: Setting
    peak_gib: float
    tokens_per_s_per_gpu: float
    mfu: float
    step_s: float

    @property
    def overrides(self) -> str:
        """The words that give this layout on the command line."""
        return " ".join(f"{key}={value}" for key, value in overrides_of(self.setting).items())


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a search came to: candidates, fastest first, and how many layouts were looked at and why they went."""

    candidates: tuple[Candidate, ...]
    tried: int
    illegal: int
    too_large: int


def overrides_of(setting: Setting) -> dict[str, object]:
    """Return the keys that a search decides, with the values of a setting."""
    keys: dict[str, object] = {"parallel.tp": setting.tp, "parallel.pp": setting.pp, "parallel.cp": setting.cp}
    if setting.model.is_moe:
        keys["parallel.ep"] = setting.ep
    if setting.pp > 1:
        keys |= {"parallel.vpp": setting.vpp, "parallel.pipeline_schedule": setting.schedule}
    keys["training.micro_batch_size"] = setting.micro_batch
    keys["recompute.mode"] = setting.recompute
    return keys


def search(setting: Setting, rates: Rates, capacity_gib: float) -> Found:
    """Look at every layout of a setting's ranks; those that fit in `capacity_gib` come back, fastest first."""
    tried = illegal = too_large = 0
    candidates = []
    states: dict[tuple[int, ...], dict[int, State]] = {}
    for candidate in layouts(setting):
        tried += 1
        if not legal(candidate):
            illegal += 1
            continue
        state = states.setdefault(_place(candidate), {})
        peak = max(_total(candidate, rank, state) for rank in {0, candidate.pp - 1}) / GIB
        if peak > capacity_gib:
            too_large += 1
            continue
        speed = throughput_of(candidate, rates, exact=False, state=state[0])
        candidates.append(
            Candidate(
                setting=candidate,
                peak_gib=peak,
                tokens_per_s_per_gpu=speed.tokens_per_s_per_gpu,
                mfu=speed.mfu,
                step_s=speed.step_s,
            )
        )
    candidates.sort(key=lambda found: (-found.tokens_per_s_per_gpu, found.peak_gib))
    return Found(candidates=tuple(candidates), tried=tried, illegal=illegal, too_large=too_large)


def _place(setting: Setting) -> tuple[int, ...]:
    """Return what the state of a rank depends on among what is varied."""
    return (setting.tp, setting.pp, setting.cp, setting.ep, setting.vpp)


def _total(setting: Setting, rank: int, states: dict[int, State]) -> float:
    if rank not in states:
        states[rank] = state_of(setting, rank)
    return stage_memory(setting, rank, states[rank]).total


def refined(candidates: Sequence[Candidate], rates: Rates) -> list[Candidate]:
    """Return candidates with their pipelines' schedules run, in the order of that."""
    exact = []
    for candidate in candidates:
        speed = throughput_of(candidate.setting, rates)
        exact.append(
            replace(candidate, tokens_per_s_per_gpu=speed.tokens_per_s_per_gpu, mfu=speed.mfu, step_s=speed.step_s)
        )
    return sorted(exact, key=lambda found: -found.tokens_per_s_per_gpu)


def layouts(setting: Setting) -> Iterator[Setting]:
    """Return every layout of the same ranks, legal or not, as far as sizes divide the ranks and the batch."""
    world, batch = setting.world, setting.micro_batch * setting.microbatches * setting.dp
    model = setting.model
    for tp, pp, cp in _degrees(world, setting.ranks_per_node, model.num_hidden_layers):
        dp = world // (tp * pp * cp)
        if batch % dp:
            continue
        for vpp, schedule in _schedules(pp, model.num_hidden_layers):
            chunks = _chunks(setting, pp * vpp)
            for ep in _expert_degrees(model.n_routed_experts, tp * cp * dp):
                for micro_batch in MICRO_BATCHES:
                    count, rest = divmod(batch // dp, micro_batch)
                    if rest:
                        continue
                    for mode in RECOMPUTE:
                        yield replace(
                            setting,
                            tp=tp,
                            pp=pp,
                            cp=cp,
                            vpp=vpp,
                            ep=ep,
                            etp=1,
                            dp_shard=dp,
                            dp_replicate=1,
                            micro_batch=micro_batch,
                            microbatches=count,
                            chunks=chunks,
                            schedule=schedule,
                            recompute=mode,
                            sequence_parallel=tp > 1,
                            reshard=pp == 1,
                            sharding=_sharding(setting, dp * cp),
                        )


def _sharding(setting: Setting, ranks: int) -> Sharding:
    if setting.sharding == "none" and setting.dp * setting.cp > 1:
        return "none"
    return ("none" if ranks == 1 else "optimizer") if setting.megatron else "full"


def _degrees(world: int, per_node: int, layers: int) -> Iterator[tuple[int, int, int]]:
    for tp in _divisors(world, per_node):
        for pp in _divisors(world // tp, layers):
            for cp in _divisors(world // (tp * pp), _MOST_CP):
                yield tp, pp, cp


def _divisors(number: int, most: int) -> list[int]:
    return [size for size in range(1, min(number, most) + 1) if number % size == 0]


def _schedules(pp: int, layers: int) -> list[tuple[int, str]]:
    if pp == 1:
        return [(1, "1F1B")]
    return [(vpp, "1F1B" if vpp == 1 else "Interleaved1F1B") for vpp in _CHUNKS if pp * vpp <= layers]


def _chunks(setting: Setting, stages: int) -> tuple[int, ...]:
    cut = even_split if setting.megatron else weighted_split
    return tuple(cut(setting.model.num_hidden_layers, stages))


def _expert_degrees(experts: int | None, ranks: int) -> list[int]:
    if experts is None:
        return [1]
    return [size for size in _divisors(experts, experts) if ranks % size == 0]
