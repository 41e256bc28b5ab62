"""`fedkeel bounds`: any bound of the papers against T, K, N or β."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from fedkeel.cli import options as opt
from fedkeel.cli.bounds_page import BoundCurve, bounds_document, spark
from fedkeel.cli.paths import refuse_directory, why_unreadable
from fedkeel.common.errors import ConfigError, did_you_mean
from fedkeel.common.jsonfiles import parse_object
from fedkeel.common.progress import console, plain_table
from fedkeel.common.references import cited
from fedkeel.report.page.rendering import write_page
from fedkeel.theory.bound import table
from fedkeel.theory.catalogue import CATALOGUE, BoundParameters, CatalogueEntry

_EXAMPLES = """[bold]Examples[/]

fedkeel bounds                                       (what there is)

fedkeel bounds fedinit-1 --over beta --constant N=20

fedkeel bounds stability --over T --page bounds.html

fedkeel bounds beyond-4.7 --over K --values 1,5,25 --advice advice.json"""
_VALUES: dict[str, tuple[float, ...]] = {
    "T": (1, 3, 10, 30, 100, 300, 1000, 3000, 10000, 30000, 100000),
    "K": (1, 2, 5, 10, 20, 50, 100),
    "N": (1, 2, 5, 10, 20, 50, 100),
    "beta": (0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.1, 0.15),
}
_WHOLE = ("T", "K", "N", "C", "S", "B")
_OF_SAMPLES = (
    "sigma_l2",
    "L_G",
    "U",
    "S",
)  # given one of these, a default sample_spread would be of another run
_WIDE = 4  # more curves than this are lines of the table instead of columns
_FORMS = {"both": ("repaired", "as_printed"), "repaired": ("repaired",), "as_printed": ("as_printed",)}


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(epilog=_EXAMPLES)(bounds)


def bounds(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="BOUND...", help="Bounds, as fedinit-1 or stability; none lists them."),
    ] = None,
    over: Annotated[str, typer.Option(metavar="NAME", help="What varies: T, K, N or beta.")] = "T",
    values: opt.ValuesOrUsual = None,
    form: Annotated[str, typer.Option(help="repaired, as_printed or both.")] = "both",
    constant: Annotated[
        list[str] | None, typer.Option(metavar="NAME=NUMBER", help="A constant, as L=20; repeatable.")
    ] = None,
    advice: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Constants of a run: what `fedkeel advise --json` printed."),
    ] = None,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a page with the curves, as bounds.html.")
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Tabulate and plot bounds against T, K, N or β, as printed and repaired, for chosen constants.

    A number in parentheses is the formula's where a condition is violated; a dash: the formula breaks down.
    """
    if not names:
        _list(as_json=as_json)
        return
    parameters = _parameters(names, advice, constant)
    grid = _grid(over, values, parameters)
    forms = _FORMS.get(form)
    if forms is None:
        raise ConfigError(f"--form {form!r}: {did_you_mean(form, _FORMS)}")
    entries = {name: CATALOGUE[name] for name in _chosen(names)}
    curves = [
        _curve(name, entry, one, over, grid, parameters) for name, entry in entries.items() for one in forms
    ]
    curves = _without_twins(curves)
    _refuse_void(curves, over)
    refuse_directory(page)
    if page is not None:
        _write(page, curves, over, entries, parameters)
    if as_json:
        print(json.dumps(_json(curves, over, parameters), ensure_ascii=False, indent=2, allow_nan=False))
    else:
        _print(curves, over, entries, page)


def _list(*, as_json: bool) -> None:
    parameters = dataclasses.asdict(BoundParameters())
    if as_json:
        listed = {
            name: {
                "what": one.what,
                "over": one.depends,
                "references": [paper.key for paper in cited(name, "bounds")],
            }
            for name, one in CATALOGUE.items()
        }
        print(json.dumps({"bounds": listed, "constants": parameters}, ensure_ascii=False, indent=2))
        return
    table = plain_table(
        ("bound", "over", "what"), [(n, ", ".join(e.depends), e.what) for n, e in CATALOGUE.items()]
    )
    for column in table.columns:
        column.justify = "left"
    screen = console()
    screen.print(table)
    shown = ", ".join(f"{name}={value:g}" for name, value in parameters.items())
    screen.print(f"\nstability means all of stability-…\nConstants (--constant): {shown}", markup=False)


def _chosen(names: list[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        group = [key for key in CATALOGUE if name == "stability" and key.startswith("stability-")]
        if not group and name not in CATALOGUE:
            begin = [key for key in CATALOGUE if name and key.startswith(name)]
            hint = f"there are {', '.join(begin)}" if begin else did_you_mean(name, [*CATALOGUE, "stability"])
            raise ConfigError(f"there is no bound {name!r}; {hint}")
        found += group or [name]
    return list(dict.fromkeys(found))


def _parameters(names: list[str], file: Path | None, settings: list[str] | None) -> BoundParameters:
    """Return the constants: the defaults, those of a file, those given one by one."""
    known = [field.name for field in dataclasses.fields(BoundParameters)]
    values: dict[str, float] = {} if file is None else _from_advice(file)
    for setting in settings or []:
        name, equals, text = setting.partition("=")
        if not equals or name not in known:
            hint = f"; {did_you_mean(name, known)}" if equals else ", as L=20"
            raise ConfigError(f"--constant {setting!r}: write NAME=NUMBER{hint}")
        values[name] = _number(name, text)
    _ask_for_spread(names, values)
    return BoundParameters(**{name: int(x) if name in _WHOLE else x for name, x in values.items()})  # type: ignore[arg-type]


def _ask_for_spread(names: list[str], values: dict[str, float]) -> None:
    """Refuse Theorem 12 for a described run whose largest distance of a sample's gradient is not given."""
    described = [name for name in _OF_SAMPLES if name in values]
    if "fedinit-12" in names and described and "sample_spread" not in values:
        raise ConfigError(
            f"fedinit-12 with a given {described[0]}: give also --constant sample_spread=…, the largest "
            "distance of a sample's gradient from its client's mean (σ_l does not bound it; 2·L_G does)"
        )


def _from_advice(file: Path) -> dict[str, float]:
    """Read the constants of a run from the adviser's JSON."""
    try:
        table = parse_object(file.read_bytes())
        run, found = table["run"], {name: one["value"] for name, one in table["constants"].items()}
        numbers = {
            name: run[name] for name in ("T", "K", "N", "C", "S", "B", "beta", "eta_g", "epsilon", "theta")
        }
        numbers |= {name: run.get(name) for name in ("momentum", "lam")}  # older files lack them
        numbers |= {
            name: found[name] for name in ("L", "sigma_l2", "sigma_g2", "L_G", "U", "mu", "tau1", "tau2")
        }
        numbers["sample_spread"] = found.get("sample_spread")
        numbers["L_G"] = max(found["L_G"], found.get("sample_gradient") or 0.0)  # Theorems 12 and 15 take it
        numbers["D"] = table["constants"]["D"]["high"]
        numbers |= {f"semi_{name}": found[name] for name in ("a", "b", "alpha", "beta")}
        numbers |= {"a": found["interpolation_a"], "b": found["interpolation_b"]}
        numbers |= {"eta": run["eta_l"], "c": run["eta_l"], "gap_0": table["losses"][0][1]}
        return {name: float(value) for name, value in numbers.items() if value is not None}
    except (OSError, ValueError, TypeError, KeyError, IndexError) as problem:
        raise ConfigError(
            f"--advice {file}: {why_unreadable(problem)}: give what `fedkeel advise --json` printed"
        ) from None


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ConfigError(f"{name} = {text!r}: give a number") from None
    if not math.isfinite(number):
        raise ConfigError(f"{name} = {text}: give a finite number")
    if name in _WHOLE and number != int(number):
        raise ConfigError(f"{name} = {text}: give a whole number")
    return number


def _grid(over: str, values: str | None, parameters: BoundParameters) -> list[float]:
    if over not in _VALUES:
        raise ConfigError(f"--over {over!r}: choose one of {', '.join(_VALUES)}")
    if values is None:
        return [x for x in _VALUES[over] if over != "N" or x <= parameters.C]
    return sorted({_number(over, text) for text in opt.split_values(values)})


def _curve(
    name: str, entry: CatalogueEntry, form: Any, over: str, grid: list[float], parameters: BoundParameters
) -> BoundCurve:
    if over not in entry.depends:
        raise ConfigError(f"{name} does not depend on {over}: --over one of {', '.join(entry.depends)}")

    def at(x: float) -> Any:
        varied: dict[str, Any] = {over: int(x) if over in _WHOLE else x}
        return entry.bound(dataclasses.replace(parameters, **varied), form)

    try:
        return BoundCurve(name, form, table(at, over, grid))
    except ValueError as problem:
        raise ConfigError(f"{name}: {problem}") from None


def _without_twins(curves: list[BoundCurve]) -> list[BoundCurve]:
    """Leave out a printed form that is the repaired one."""
    found: list[BoundCurve] = []
    for curve in curves:
        if not any(curve.name == one.name and curve.values == one.values for one in found):
            found.append(curve)
    return found


def _refuse_void(curves: list[BoundCurve], over: str) -> None:
    """Raise the reason where no bound has a number anywhere."""
    if any(math.isfinite(value) for curve in curves for value in curve.values):
        return
    reasons = "".join(f"\n  {text}" for text in curves[0].violations(over))
    raise ConfigError(f"{curves[0].name} says nothing for any value of {over}:{reasons}")


def _print(
    curves: list[BoundCurve], over: str, entries: dict[str, CatalogueEntry], page: Path | None
) -> None:
    screen = console()

    def line(text: str) -> None:
        screen.print(text, markup=False, soft_wrap=True)

    for name, entry in entries.items():
        line(f"{name}: {entry.what}")
    line("")
    columns = [(over, *(f"{row.at:g}" for row in curves[0].rows))]
    columns += [(curve.label, *(_cell(row.bound) for row in curve.rows)) for curve in curves]
    lines = columns if len(curves) > _WIDE else list(zip(*columns, strict=True))
    screen.print(plain_table(lines[0], lines[1:]))
    line("")
    for curve in curves:
        line(f"{curve.label}: {spark(curve.values)}")
        for text in curve.violations(over):
            line(f"  {text}")
    if page is not None:
        line(f"page: {page}")


def _cell(bound: Any) -> str:
    if math.isinf(bound.value):
        return "—"
    return f"{bound.value:.4g}" if bound.holds else f"({bound.value:.4g})"


def _json(curves: list[BoundCurve], over: str, parameters: BoundParameters) -> dict[str, Any]:
    def clean(record: dict[str, float | str]) -> dict[str, float | str | None]:
        return {k: None if isinstance(v, float) and math.isinf(v) else v for k, v in record.items()}

    return {
        "over": over,
        "constants": dataclasses.asdict(parameters),
        "curves": [
            {"bound": curve.name, "form": curve.form, "rows": [clean(row.record) for row in curve.rows]}
            for curve in curves
        ],
    }


def _write(
    path: Path,
    curves: list[BoundCurve],
    over: str,
    entries: dict[str, CatalogueEntry],
    parameters: BoundParameters,
) -> None:
    about = [f"{name}: {entry.what}" for name, entry in entries.items()]
    shown = ", ".join(f"{k} = {v:g}" for k, v in dataclasses.asdict(parameters).items() if k != over)
    write_page(bounds_document(curves, over, about, shown), path)
