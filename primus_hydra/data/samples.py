"""Samples by index: fixed windows over the packed documents of a split, or seeded random tokens. No state.

Packing, as TorchTitan packs: inputs and labels are shifted inside a document, so no label crosses into the next one;
the pairs of all documents are laid end to end and cut every `seq_length`. Positions restart at 0 with each document,
and a document that goes on in the next sample begins there at position 0 again. The last, short window is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
# Mock tokens never run out; the number only has to exceed every index that a run can ask for.
_MOCK_SAMPLES: Final = 1 << 48


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One training sample: three arrays of seq_length int64."""

    inputs: Int64s
    labels: Int64s
    positions: Int64s


class Samples(Protocol):
    """Samples of one split, in the order of the text."""

    def __len__(self) -> int:
        """Whole samples that the split holds."""

    def sample(self, index: int) -> Sample:
        """Return sample `index` (from 0); raises IndexError outside the split."""


class TokenSamples:
    """Windows over a flat token file; finding a sample takes O(log documents) steps and reads only its tokens."""

    def __init__(
        self,
        tokens: npt.NDArray[np.uint16] | npt.NDArray[np.uint32],
        starts: Int64s,
        pair_ends: Int64s,
        *,
        seq_length: int,
        document_mask: bool = True,
    ) -> None:
        """Take the tables of `split.Part`; without `document_mask` positions run through a sample."""
        self._tokens = tokens
        self._starts = starts
        self._pair_ends = pair_ends
        self._seq_length = seq_length
        self._document_mask = document_mask

    def __len__(self) -> int:
        """Whole samples that the split holds."""
        return int(self._pair_ends[-1]) // self._seq_length

    def sample(self, index: int) -> Sample:
        """Return sample `index` (from 0); raises IndexError outside the split."""
        if not 0 <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        first = index * self._seq_length
        pairs = np.arange(first, first + self._seq_length, dtype=np.int64)
        low, high = np.searchsorted(self._pair_ends, [first, first + self._seq_length - 1], side="right")
        borders = np.asarray(self._pair_ends[low - 1 : high])
        within = np.searchsorted(borders, pairs, side="right") - 1
        begins = borders[within]
        where = np.asarray(self._starts[low - 1 : high])[within] + pairs - begins
        positions = pairs - (np.maximum(begins, first) if self._document_mask else first)
        inputs, labels = self._tokens[where], self._tokens[where + 1]
        return Sample(inputs=inputs.astype(np.int64), labels=labels.astype(np.int64), positions=positions)


class MockSamples:
    """Random tokens that depend on the seed and the index only; each sample is one document."""

    def __init__(self, *, seq_length: int, vocab_size: int, seed: int) -> None:
        self._seq_length = seq_length
        self._vocab_size = vocab_size
        self._seed = seed

    def __len__(self) -> int:
        """A number no run reaches."""
        return _MOCK_SAMPLES

    def sample(self, index: int) -> Sample:
        """Return sample `index` (from 0); raises IndexError for a negative one."""
        if not 0 <= index < _MOCK_SAMPLES:
            raise IndexError(f"sample {index} of {_MOCK_SAMPLES}")
        # Raw words of a named bit generator: numpy keeps those the same between releases, unlike Generator's methods.
        words = np.random.PCG64(np.random.SeedSequence([self._seed, index])).random_raw(self._seq_length + 1)
        tokens = (np.asarray(words) % np.uint64(self._vocab_size)).astype(np.int64)
        return Sample(inputs=tokens[:-1], labels=tokens[1:], positions=np.arange(self._seq_length, dtype=np.int64))
