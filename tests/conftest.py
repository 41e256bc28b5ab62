"""The folder of shared helpers is importable from every test, wherever it lies."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
