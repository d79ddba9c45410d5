"""The modules that help these tests lie one folder up; what refusals.py asserts is explained as in a test."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
pytest.register_assert_rewrite("refusals")
