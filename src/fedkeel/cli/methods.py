"""`fedkeel methods` and `fedkeel explain`.

`fedkeel methods` prints methods.json, so that it need not import PyTorch. The file is generated: `python -m
fedkeel.cli.methods` writes it, and a test compares it with the code.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fedkeel.cli import options as opt
from fedkeel.common.errors import ConfigError
from fedkeel.common.progress import console, plain_table
from fedkeel.common.references import cited
from fedkeel.experiments.expression import parse_method

TABLE = Path(__file__).with_name("methods.json")
_METHODS = "[bold]Examples[/]\n\nfedkeel methods\n\nfedkeel methods --json"
_EXPLAIN = (
    "[bold]Examples[/]\n\n"
    'fedkeel explain scaffold\n\nfedkeel explain "relaxed(fedcm(alpha=0.2), beta=0.1)"\n\n'
    'fedkeel explain "stages((feddyn, 0.5), fedavg)" --json'
)


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command(epilog=_METHODS)(methods)
    app.command(epilog=_EXPLAIN)(explain)


def methods(as_json: opt.Json = False) -> None:
    """List the methods: the idea, what is sent in units of the model, and the parameters."""
    text = TABLE.read_text()
    if as_json:
        print(text, end="")
        return
    rows = [
        (
            one["name"],
            f"{one['down']['vectors']}/{one['up']['vectors']}",
            str(one["client_state"]["vectors"]),
            str(one["gradients_per_step"]),
            one["idea"],
        )
        for one in json.loads(text)
    ]
    table = plain_table(("method", "down/up", "client state", "gradients", "idea"), rows)
    table.columns[-1].justify = "left"
    table.columns[-1].no_wrap = False
    screen = console()
    screen.print(table)
    screen.print(
        "\nDown/up and client state count vectors of the model's size, gradients those of a local step."
        "\nOn any of them: relaxed(METHOD, beta=0.1), sharp(METHOD, rho=0.1), stages((METHOD, 0.5), METHOD)."
        "\nEquations and parameters: fedkeel explain METHOD. The papers for BibTeX: fedkeel cite METHOD",
        markup=False,
    )


def explain(
    name: Annotated[
        str | None,
        typer.Argument(metavar="METHOD", help='Method, as scaffold or "relaxed(fedcm, beta=0.1)".'),
    ] = None,
    method: Annotated[
        str | None, typer.Option(metavar="METHOD", help="The same, as other commands take it.")
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Print a method as equations, read off its code, with what it sends, keeps and costs."""
    from fedkeel.explain import explain as explained  # noqa: PLC0415  loads PyTorch

    if (name is None) == (method is None):
        raise ConfigError(
            "explain: name one method, as in fedkeel explain scaffold; `fedkeel methods` lists them"
        )
    found = explained(parse_method(name or method or ""))
    if as_json:
        print(json.dumps(found.as_dict(), ensure_ascii=False, indent=2))
    else:
        console().print(str(found), markup=False, soft_wrap=True)


def method_table() -> str:
    """Return the table of all methods as JSON, read off their code."""
    from fedkeel.explain import explain_method  # noqa: PLC0415  loads PyTorch
    from fedkeel.methods import METHODS  # noqa: PLC0415  loads PyTorch

    table = [
        {
            "name": made.__name__,
            "idea": _first_line(made),
            **explain_method(made()).as_dict(),
            "references": [paper.as_dict() for paper in cited(made.__name__)],
        }
        for made in METHODS
    ]
    return json.dumps(table, ensure_ascii=False, indent=2) + "\n"


def _first_line(made: Any) -> str:
    return (made.__doc__ or "").strip().splitlines()[0]


if __name__ == "__main__":
    TABLE.write_text(method_table())
    print(f"wrote {TABLE.name}")
