"""What a manifest must hold to be used."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from fedkeel.common.jsonfiles import Shape
from fedkeel.settings.options import DEPLOYED, ENGINES, Threads

_Count = Annotated[int, Field(ge=1)]


class _Identity(Shape):
    task: dict[str, Any]
    federation: Any
    method: str
    work: str
    cohort: int | float
    sampling: str
    seed: int


class _Best(Shape):
    round: Annotated[int, Field(ge=0)]
    column: str
    selected_on: str | None = None


class _End(Shape):
    rounds: Annotated[int, Field(ge=0)]
    stopped_by: str | None = None
    best: _Best | None = None
    sha256: dict[str, str] | None = None

    @model_validator(mode="after")
    def _has_its_best_round(self) -> _End:
        if self.best is not None and self.best.round >= self.rounds:
            raise ValueError("its best round is after its last")
        return self


class _EngineChoice(Shape):
    reason: str
    microseconds_per_step: dict[str, float | str]


class _InitialWeights(Shape):
    kept_by_model: list[str]


class ManifestShape(Shape):
    """A manifest; `fedkeel.running.manifest` says what it holds."""

    identity: _Identity
    rounds: _Count
    engine: str
    threads: Threads
    engine_choice: _EngineChoice
    data: dict[str, Any]
    versions: dict[str, str]
    end: _End | None = None
    experiment: str | None = None
    initial_weights: _InitialWeights | None = None
    run_id: str = ""
    columns: list[dict[str, Any]] | None = None

    @field_validator("engine")
    @classmethod
    def _exists(cls, engine: str) -> str:
        if engine not in (known := (*ENGINES, DEPLOYED)):
            raise ValueError(f"known: {', '.join(known)}")
        return engine

    @field_validator("data")
    @classmethod
    def _names_what_it_is(cls, data: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(data.get("dataset", ""), str):
            raise ValueError("its dataset is no name")
        return data
