"""Write the golden traces anew: `make golden`. A changed trace is a commit of its own, with its reason."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from golden.cases import FILES

warnings.simplefilter("ignore")
for name in sys.argv[1:] or FILES:
    entries = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in FILES[name]().items())
    Path(__file__).with_name(f"{name}.json").write_text(f"{{\n{entries}\n}}\n")
    print(f"tests/golden/{name}.json")
