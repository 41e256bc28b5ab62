"""`python -m fedkeel.probes` writes what fedkeel's own probes declare where it is read without PyTorch."""

from __future__ import annotations

import json

from fedkeel.common.columns import PROBE_COLUMNS_FILE
from fedkeel.probes import (
    ClientAccuracy,
    Clipping,
    Cosine,
    Costs,
    Divergence,
    Diversity,
    Drift,
    ExcessRisk,
    Layers,
    Losses,
    Probe,
    Switching,
    Update,
)
from fedkeel.probes.privacy import PrivacyBudget

ON_PAGES: tuple[type[Probe], ...] = (  # in the order in which a page draws their columns
    Divergence,
    Diversity,
    Cosine,
    Drift,
    Update,
    Clipping,
    Switching,
    Losses,
    ExcessRisk,
    ClientAccuracy,
    Layers,
    Costs,
    PrivacyBudget,
)


def declared_columns() -> str:
    """Return the columns of all probes as JSON."""
    table = {kind.__name__: [column.as_table() for column in kind.columns] for kind in ON_PAGES}
    return json.dumps(table, ensure_ascii=False, indent=1) + "\n"


if __name__ == "__main__":
    PROBE_COLUMNS_FILE.write_text(declared_columns())
    print(f"wrote {PROBE_COLUMNS_FILE.name}")
