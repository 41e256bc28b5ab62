"""Expressions: what the command line and experiment files call methods, splits and schedules."""

from __future__ import annotations

import pytest

from fedkeel.common.errors import ConfigError
from fedkeel.core.schedules import Drop, InverseRoot, InverseTime
from fedkeel.data import Augment, ChannelGains, ClassBrightness
from fedkeel.experiments.expression import (
    parse,
    parse_augment,
    parse_method,
    parse_noise,
    parse_schedule,
    parse_split,
    spell_method,
)
from fedkeel.methods import METHODS, SCAFFOLD, Decayed, FedAvg, FedDyn, FedInit, relaxed, sharp, stages

SPLITS = (
    "IID",
    "IID(balanced=True, lognormal=0.3)",
    "DirichletByClass(0.1)",
    "DirichletByClient(alpha=0.3, replacement=True)",
    "Pathological(2)",
    "Natural(by='class', max_samples=None)",
)


@pytest.mark.parametrize("make", METHODS, ids=lambda make: make.__name__)
def test_repr_of_every_method_reads_back(make):
    values = [make()]
    if make is not FedInit:  # relaxed once already
        values += [relaxed(make(), beta=0.2), relaxed(make(), beta=Decayed(0.1, 0.9), first="none")]
    for value in values:
        assert parse_method(repr(value)) == value


@pytest.mark.parametrize("make", METHODS, ids=lambda make: make.__name__)
def test_a_bare_name_in_any_case_is_the_default_method(make):
    assert parse_method(make.__name__) == make()
    assert parse_method(make.__name__.lower()) == make()


def test_plug_ins_nest_and_stages_read_back():
    nested = sharp(relaxed(SCAFFOLD(lr=0.5), beta=0.1), rho=0.05)
    assert parse_method("sharp(relaxed(scaffold(lr=0.5), beta=0.1), rho=0.05)") == nested
    staged = stages((FedDyn(alpha=0.01), 0.5), FedAvg())
    assert parse_method("stages((feddyn(alpha=0.01), 0.5), fedavg)") == staged
    assert parse_method(repr(staged)) == staged


def test_hyphens_negative_numbers_and_lower_case_words():
    assert parse_method("Fed-Avg") == FedAvg()
    assert parse_method("fedinit(beta=-0.1)") == FedInit(beta=-0.1)
    assert parse_method("feddyn(compensate=false)") == FedDyn(compensate=False)


@pytest.mark.parametrize("text", SPLITS)
def test_repr_of_every_split_reads_back(text):
    value = parse_split(text)
    assert parse_split(repr(value)) == value


def test_repr_of_every_noise_and_augmentation_reads_back():
    for value in (ChannelGains(), ChannelGains(0.5), ClassBrightness(0)):
        assert parse_noise(repr(value)) == value
    for value in (Augment(), Augment(flip=False, pad=8)):
        assert parse_augment(repr(value)) == value
    assert parse_noise("class-brightness") == ClassBrightness()
    with pytest.raises(ConfigError, match=r"'true' is not an augmentation: write one, as in 'Augment\(\)'"):
        parse_augment("true")


@pytest.mark.parametrize(
    "value", [Drop(10), Drop(3, 0.5), Drop(0.75), Drop(1.0), InverseTime(), InverseRoot()], ids=repr
)
def test_repr_of_every_schedule_reads_back(value):
    assert parse_schedule(repr(value)) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scafold", "no method 'scafold'; did you mean 'SCAFFOLD'?"),
        ("relaxed(scafold)", "  relaxed(scafold)\n          ^"),
        ("relaxed(fedavg", "'(' was never closed\n  relaxed(fedavg\n         ^"),
        ("fedprox(mu=-1)", "FedProx: mu = -1: input should be greater than or equal to 0"),
        ("fedprox(mx=1)", "FedProx has no argument 'mx'"),
        ("fedprox(1, 2)", "FedProx takes at most 1 arguments (mu), not 2"),
        ("fedinit(bta=1)", "FedInit has no argument 'bta'; did you mean 'beta'?"),
        ("fedavg(lr='fast')", "FedAvg: lr = 'fast'"),
        ("fedavg(lr=1, lr=2)", "given twice"),
        ("relaxed()", "relaxed needs the argument 'inner'"),
        ("relaxed(fedavg, **{'beta': 1})", "`**` cannot be used here"),
        ("Decayed(0.1)", "is not a method"),
        ("3", "'3' is not a method"),
        ("", "an empty text is not a method"),
        ("fedavg(lr=[1, 2][0])", "only names, calls, numbers"),
        ("__import__('os').system('true')", "only names, calls, numbers"),
        ("(" * 500, "too many nested parentheses"),
        ("x" * 2000, "the longest that is read"),
    ],
)
def test_a_bad_expression_names_the_thing_and_the_place(text, message):
    with pytest.raises(ConfigError) as caught:
        parse_method(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Dirichlet(0.1)", "no split 'Dirichlet'; did you mean 'DirichletByClass'?"),
        ("DirichletByClass", "needs the argument 'alpha'"),
        ("DirichletByClass(-1)", "alpha is -1"),
        ("DirichletByClass('a')", "DirichletByClass"),
        ("IID(balnced=True)", "did you mean 'balanced'?"),
    ],
)
def test_a_bad_split_says_what_is_wrong(text, message):
    with pytest.raises(ConfigError, match=r".") as caught:
        parse_split(text)
    assert message in str(caught.value)


def test_only_what_the_table_names_is_called():
    called = []
    assert parse("note(1, 'a-b', None, (True, -2.5))", {"note": lambda *args: called.append(args)}) is None
    assert called == [(1, "a-b", None, (True, -2.5))]
    with pytest.raises(ConfigError, match="there is no value 'print'"):
        parse("print(1)", {"note": called.append})


def test_methods_are_spelled_as_their_papers_do():
    assert spell_method("relaxed(scaffold(lr=0.5), beta=0.1, first='none')") == (
        "relaxed(SCAFFOLD(lr=0.5), beta=0.1, first='none')"
    )
    assert spell_method("fed-avg") == "FedAvg"
