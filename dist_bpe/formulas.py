"""Measures of how even and how efficient token counts are: pure functions, each with its source."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

RENYI_ALPHA = 2.5


# ---- formulas


def gini(costs: Sequence[float]) -> float:
    """ΣΣ|c_i - c_j| / (2 n² c̄): 0 when all pay the same."""
    ordered = sorted(costs)
    n, total = len(ordered), math.fsum(ordered)
    # Each cost is subtracted from those above it and those below from it: no need of all pairs.
    spread = math.fsum((2 * i - n + 1) * cost for i, cost in enumerate(ordered))
    return spread / (n * total) if total else 0.0


def renyi_efficiency(frequencies: npt.NDArray[np.uint64], size: int, alpha: float = RENYI_ALPHA) -> float:
    """[log2 Σ p^α / (1 - α)] / log2 size (arXiv 2306.16842); frequencies are occurrences of each token."""
    occurrences = frequencies[frequencies > 0].astype(float)
    if not len(occurrences) or size < 2:
        return 0.0
    p = occurrences / occurrences.sum()
    return float(np.log2((p**alpha).sum()) / (1 - alpha) / math.log2(size))
