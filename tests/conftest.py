"""Set-up of all tests."""

import os
import sys
from pathlib import Path

from hypothesis import settings

# the folder of shared helpers is importable from every test, wherever it lies
sys.path.insert(0, str(Path(__file__).parent))

# CI judges a change by the same examples every time; at home each run looks at new ones
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
