"""What is written as TOML reads back equal."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkeel.common.tomlfile import dump, inline
from fedkeel.experiments.experiment import Experiment
from fedkeel.experiments.planned_run import changes

SCALARS = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text()
VALUES = SCALARS | st.lists(SCALARS, max_size=3)
TABLES = st.recursive(
    st.dictionaries(st.text(), VALUES, max_size=4),
    lambda inner: st.dictionaries(st.text(), VALUES | inner, max_size=3),
    max_leaves=6,
)


@given(TABLES)
@pytest.mark.slow
def test_a_table_reads_back_equal(table: dict[str, Any]) -> None:
    assert tomllib.loads(dump(table)) == table


@given(VALUES)
def test_an_inline_value_is_one_line_that_reads_back_equal(value: Any) -> None:
    text = inline(value)
    assert "\n" not in text
    assert tomllib.loads(f"v = {text}") == {"v": value}


def test_none_is_left_out_and_other_objects_are_text() -> None:
    table = {"a": None, "inner": {"b": None, "path": Path("x")}, "pair": (1, 2)}
    assert tomllib.loads(dump(table)) == {"inner": {"path": "x"}, "pair": [1, 2]}


def test_a_list_among_the_settings_of_a_command_line_reads_back_equal() -> None:
    experiment = Experiment(probes=["Divergence(every=5)", "Diversity()"], cohort=0.25)
    assert Experiment().with_settings(changes(experiment)) == experiment
    assert all("\n" not in setting for setting in changes(experiment))
