"""`fedkeel advise`: measure the constants of a run and report what the theorems guarantee."""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from fedkeel.cli import options as opt
from fedkeel.cli.advise_document import advice_document
from fedkeel.cli.advise_page import as_json_value, print_page
from fedkeel.cli.advise_values import AdvicePage, MeasuredStability
from fedkeel.cli.constants import measure
from fedkeel.cli.paths import refuse_directory, why_unreadable
from fedkeel.cli.studies import takes_settings
from fedkeel.common.errors import ConfigError
from fedkeel.common.jsonfiles import parse_object, unsealed
from fedkeel.experiments import RESULT_FILE
from fedkeel.experiments.experiment import Experiment
from fedkeel.report.page.rendering import write_page
from fedkeel.studies.constants_study import ConstantsStudy
from fedkeel.studies.measured import grouped
from fedkeel.theory.advice import AdviceInputs
from fedkeel.theory.beyond_smoothness import Steps

if TYPE_CHECKING:
    from fedkeel.core.work import Work
    from fedkeel.studies.constants import Findings

_EXAMPLES = """[bold]Examples[/]

fedkeel advise

fedkeel advise --method "fedinit(beta=0.05)" --clients 20 --cohort 20 --lr 0.01 --epsilon 0.5

fedkeel advise --data cifar10 --model cnn --out runs/advice   (the same line goes on after an interruption)

fedkeel advise --method fedavg --page advice.html

fedkeel advise experiment.toml --stability runs/stability --json > advice.json"""
_ASKED = "What is asked"
_PILOT = ("pilot_rounds", "pilot_points", "pilot_clients", "pilot_samples")
_STUDY = "stability study"
_GIVE_STUDY = "give the directory of a finished `fedkeel study stability`"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(epilog=_EXAMPLES + opt.OTHER_SETTINGS)(advise)


@opt.takes_experiment(leave_out=("track",))
@takes_settings(ConstantsStudy, *_PILOT, panel=opt.PILOT)
def advise(
    experiment: Experiment,
    epsilon: Annotated[
        float | None,
        typer.Option(help="Loss to reach; by default a tenth of the first.", rich_help_panel=_ASKED),
    ] = None,
    beta: Annotated[
        float | None,
        typer.Option(
            help="β of relaxed initialisation; by default the method's, else 0.1.", rich_help_panel=_ASKED
        ),
    ] = None,
    alpha: Annotated[float, typer.Option(help="FedDyn's α.", rich_help_panel=_ASKED)] = 0.1,
    stability: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR|FILE",
            help="A stability study, or measured discrepancies by method (JSON): shown beside the bounds.",
            rich_help_panel=_ASKED,
        ),
    ] = None,
    out: opt.PilotOut = None,
    page_file: Annotated[
        Path | None, typer.Option("--page", metavar="FILE", help="Also write it as a page, as advice.html.")
    ] = None,
    as_json: opt.Json = False,
    **pilot: int,
) -> None:
    """Report what theory says about a run: constants, safe rates, rounds to a target, conditions, caveats.

    A short pilot is trained and measured. The advice comes first, in five lines; below it the page prints
    the constants, the limits and each theorem's conditions as "holds" or "violated by a factor …".
    """
    _check(epsilon, beta, alpha)
    refuse_directory(page_file)
    measured = read_stability(stability)
    effort = {name.removeprefix("pilot_"): value for name, value in pilot.items()}
    found = measure(experiment, effort, out)
    asked = _inputs(experiment, found, epsilon=epsilon, beta=beta, alpha=alpha)
    page = AdvicePage.of(experiment, found, asked, measured)
    if page_file is not None:
        _write(page, page_file)
    if as_json:
        print(json.dumps(as_json_value(page), ensure_ascii=False, indent=2, allow_nan=False))
    else:
        print_page(page)
    if page.best.steps is None and math.isfinite(page.best.floor):
        raise ConfigError(f"--epsilon: {page.best.reason}")


def _write(page: AdvicePage, path: Path) -> None:
    write_page(advice_document(page), path)


def _check(epsilon: float | None, beta: float | None, alpha: float) -> None:
    """Refuse what no theorem could use before the pilot runs."""
    if epsilon is not None and not 0 < epsilon < math.inf:
        raise ConfigError(f"--epsilon {epsilon:g}: give a finite loss above 0")
    if beta is not None and not -1 < beta < 1:
        raise ConfigError(f"--beta {beta:g}: relaxed initialisation takes a β between -1 and 1")
    if not 0 < alpha < math.inf:
        raise ConfigError(f"--alpha {alpha:g}: give a finite number above 0")


def read_stability(path: Path | None) -> dict[str, MeasuredStability]:
    """Read measured discrepancies by method: of a stability study, or of a file as {"FedAvg": 0.12, …}.

    A value in a file is a number (after as many rounds as the run has), a curve over rounds from 0 on, or a
    table with one of these under "discrepancy" or "mean". Of several seeds the mean is taken.
    """
    if path is None:
        return {}
    try:
        table = unsealed(parse_object(_stability_file(path).read_bytes()))
        if table.get("study", _STUDY) != _STUDY:
            raise ConfigError(f"--stability {path}: holds a {table['study']}: {_GIVE_STUDY}")
        numbers = table.get("numbers", table)
        if "methods" not in numbers:
            numbers = {"methods": numbers}
        return {
            str(name): _mean([_measured_stability(one) for _, one in found])
            for name, found in grouped(numbers).items()
        }
    except FileNotFoundError:
        raise ConfigError(f"--stability {path}: there is no such file: {_GIVE_STUDY}") from None
    except ConfigError:
        raise
    except (OSError, ValueError, TypeError, AttributeError, KeyError, IndexError) as problem:
        raise ConfigError(
            f"--stability {path}: {why_unreadable(problem)}: {_GIVE_STUDY}, or a file with "
            '{"FedAvg": 0.12, "SCAFFOLD": 0.3}'
        ) from None


def _stability_file(path: Path) -> Path:
    """Return the file that holds the numbers of a study, whose directory may be given."""
    if not path.is_dir():
        return path
    for name in (RESULT_FILE, "stability.json"):  # the latter in version 0.1
        if (path / name).exists():
            return path / name
    raise ConfigError(f"--stability {path}: no finished stability study: {_GIVE_STUDY}")


def _mean(several: list[MeasuredStability]) -> MeasuredStability:
    return MeasuredStability(fmean(one.value for one in several), several[0].rounds)


def _measured_stability(entry: Any) -> MeasuredStability:
    if isinstance(entry, dict):
        entry = entry["discrepancy"] if "discrepancy" in entry else entry["mean"]
    value = float(entry[-1] if isinstance(entry, list) else entry)
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"a discrepancy of {value}")
    return MeasuredStability(value, max(1, len(entry) - 1) if isinstance(entry, list) else None)


def _inputs(
    experiment: Experiment, found: Findings, *, epsilon: float | None, beta: float | None, alpha: float
) -> AdviceInputs:
    """Put the run and its constants together; what a calculator refuses is an error of the settings."""
    own = _parameters(experiment, found.cohort / found.clients)
    server, relaxation = own.server_rate, own.relaxation
    chosen = relaxation if beta is None else beta
    inter = (found["interpolation_a"], found["interpolation_b"])
    usable = all(math.isfinite(x) and x > 0 for x in inter)
    try:
        return AdviceInputs(
            **{name: found[name] for name in ("L", "L_G", "sigma_l2", "sigma_g2", "Phi", "U")},
            D=found.estimates["D"].high,  # f* is below the best of a short pilot
            gap_0=found.start_loss,
            semi=found.fit.constants,
            semi_here=found.fit.at(Steps(K=found.K, eta_l=experiment.work.lr, eta_g=server)),
            inter=inter if usable else None,
            K=found.K,
            N=found.cohort,
            C=found.clients,
            S=found.samples,
            T=experiment.rounds,
            eta_l=experiment.work.lr,
            eta_g=server,
            beta=0.1 if chosen is None else chosen,
            epsilon=found.start_loss / 10 if epsilon is None else epsilon,
            mu=found["mu"] if found["mu"] > 0 else None,
            dropped=None if found.along is None or relaxation is None else relaxation * found.along,
            dropped_largest=_largest_dropped(found, relaxation),
            B=min(experiment.work.batch_size or found.samples, found.samples),
            sample_gradient=found["sample_gradient"],
            sample_spread=found["sample_spread"],
            dyn_alpha=alpha,
            uncovered=_uncovered(experiment.work),
            momentum=own.momentum,
            lam=own.lam,
        )
    except ValueError as problem:
        raise ConfigError(f"the theorems cannot take these constants: {problem}") from None


def _largest_dropped(found: Findings, relaxation: float | None) -> float | None:
    """Return the largest β⟨∇f, x − mean w_i⟩ of the pilot's models, None where it was not measured."""
    if relaxation is None or not found.along_each:
        return None
    return max(relaxation * along for along in found.along_each)


def _uncovered(work: Work) -> tuple[str, ...]:
    """Return what local steps have that no theorem covers."""
    found = {
        f"local momentum ({work.momentum:g})": work.momentum > 0,
        f"clipping to norm {work.clip}": work.clip is not None,
        str(work.optimizer): work.optimizer is not None,
    }
    return tuple(name for name, there in found.items() if there)


class _MethodParameters(NamedTuple):
    """What theorems take of a method: server step, largest β of a relaxed start, FedSAGD's β and λ."""

    server_rate: float
    relaxation: float | None
    momentum: float
    lam: float


def _parameters(experiment: Experiment, share: float) -> _MethodParameters:
    """Return the parameters of the first stage; FedSAGD's are its defaults where the method is another."""
    from fedkeel.methods import SCAFFOLD, Adaptive, FedAvg, FedSAGD, Relaxed  # noqa: PLC0415  loads PyTorch
    from fedkeel.methods.stages import as_stages  # noqa: PLC0415  loads PyTorch

    method = as_stages(experiment.make_method()).fixed(experiment.rounds).parts[0].method
    beta = None
    if isinstance(method, Relaxed):
        if isinstance(method.beta, Adaptive):
            beta = method.beta.largest(share)
        else:
            beta = method.beta if isinstance(method.beta, float) else method.beta.beta
        method = method.inner
    sagd = method if isinstance(method, FedSAGD) else FedSAGD()
    rate = method.lr if isinstance(method, FedAvg | SCAFFOLD | FedSAGD) else 1.0
    return _MethodParameters(rate, beta, sagd.beta, sagd.lam)
