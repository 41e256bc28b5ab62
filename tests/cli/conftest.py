"""A command line that is called in the process, in an empty working directory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from fedkeel.cli import app

TINY = ("--clients", "4", "--cohort", "2", "--steps", "1", "--batch-size", "8", "--rounds", "3")


@pytest.fixture
def fedkeel(tmp_path, monkeypatch) -> Callable:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("fedkeel.cli.studies.cores", lambda: 1)  # processes of their own take seconds
    runner = CliRunner()

    def call(*args: str, code: int = 0):
        result = runner.invoke(app, [str(arg) for arg in args])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, (result.exit_code, result.stdout, result.stderr)
        return result

    return call


@pytest.fixture
def tiny(fedkeel) -> Callable:
    """`run` with a model that trains in no time."""

    def call(*args: str, code: int = 0):
        return fedkeel("run", *TINY, *args, code=code)

    return call
