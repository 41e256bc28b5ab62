"""`fedkeel advise`: the page, its JSON, and what bad input gets."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from statistics import fmean

import pytest

from fedkeel.cli.advise import read_stability
from fedkeel.common.errors import ConfigError

QUICK = (
    *("advise", "--clients", "6", "--cohort", "3", "--steps", "2", "--batch-size", "8", "--rounds", "20"),
    *("--pilot-rounds", "3", "--pilot-points", "2", "--pilot-clients", "2", "--model", "logistic"),
)


@pytest.mark.slow
def test_the_page_says_everything_the_issue_asks_for(fedkeel):
    Path("stability.json").write_text(
        '{"methods": {"fedavg(lr=1.0)": {"mean": [0.0, 0.1, 0.3]}, "FedInit": 0.2}}'
    )
    result = fedkeel(*QUICK, "--stability", "stability.json")
    page = result.stdout
    for part in (
        "Constants, along and around the pilot",
        "power iteration on Hessian-vector products",
        "frontier (a, b):",
        "Largest safe local rate (yours: η_l = 0.1)",
        "Largest safe global rate",
        "Rounds to a loss of ε",
        "Range of β for relaxed initialisation",
        "violated by a factor",
        ": holds",
        "the usual β = 0.1 lies outside Theorem 1's range",
        "practical α (0.01 to 0.1) never meet it",
        "Theorem 4, f − f* after T rounds, PL",
        "Theorem 9, f − f* after T rounds, interpolation and PL",
        "largest ‖g_z‖/‖∇f_i‖ of a sample",
        "what was measured",
        "not in Table 1",
    ):
        assert part in page, part
    assert result.stderr.count("curvature and pairs: 4 of 4 done") == 1
    (line,) = (line for line in page.splitlines() if "times what was measured" in line)
    assert line.split()[1] == "2"  # the curve's rounds, not the run's
    assert "nan" not in page.lower().replace("nanag", "")


ADVICE = ("Local rate: ", "Global rate: ", "Rounds: ", "Relaxed initialisation: ", "Guarantees: ")


@pytest.mark.slow
def test_the_page_begins_with_the_advice_in_five_lines(fedkeel):
    title, *lines = fedkeel(*QUICK).stdout.splitlines()[:8]
    assert title.startswith("FedAvg on digits: K = 2 local steps of 0.1, 3 of 6 clients")
    assert [line[: len(start)] for line, start in zip(lines, ADVICE, strict=False)] == list(ADVICE)
    assert lines[5:] == ["", "Constants, along and around the pilot"]
    assert "no theorem allows η_l = 0.1; the largest that one does is" in lines[0]
    assert "(planned: 20; were all 6 clients active, not 3)" in lines[2]
    assert "stable in practice (β·C/N ≤ 1)" in lines[3]
    assert "none of 9 theorems holds" in lines[4]


@pytest.mark.slow
def test_the_advice_of_a_run_within_the_theorems_says_so(fedkeel):
    words = ("--lr", "1e-5", "--beta", "0.01", "--cohort", "6")
    found = json.loads(fedkeel(*QUICK, *words, "--json").stdout)
    local, rounds, _, beta, guarantees = (found["advice"][index] for index in (0, 2, 1, 3, 4))
    assert local == "Local rate: η_l = 1e-05 is safe by every theorem."
    assert "is promised after" in rounds
    assert "covered by Theorem 1;" in beta
    assert "Theorem 4.7" in guarantees
    assert "lacks only" not in guarantees


@pytest.mark.slow
def test_a_beta_that_grows_without_bound_is_advised_against(fedkeel):
    found = json.loads(fedkeel(*QUICK, "--beta", "0.9", "--json").stdout)
    assert "β = 0.9 is covered by no theorem and too large: take 0.5 or less" in found["advice"][3]


@pytest.mark.slow
def test_json_is_all_that_is_on_stdout_and_feeds_bounds(fedkeel):
    result = fedkeel(*QUICK, "--json", "--method", "fedinit(beta=0.3)")
    found = json.loads(result.stdout)
    assert "pilot: 3 of 3 done" in result.stderr
    assert found["constants"]["L"]["value"] > 0
    assert found["constants"]["sigma_l2"]["samples"] > 0
    assert found["run"]["beta"] == 0.3
    assert {row["method"] for row in found["stability"]} >= {"FedAvg", "FedSAGD"}
    dropped = [c for one in found["conditions"] for c in one["conditions"] if "mean w_i" in c["name"]]
    assert dropped
    assert all("measured" in c["text"] and "not measured" not in c["text"] for c in dropped)
    Path("advice.json").write_text(result.stdout)
    told = json.loads(fedkeel("bounds", "stability", "--advice", "advice.json", "--json").stdout)
    assert told["constants"]["L"] == found["constants"]["L"]["value"]
    assert told["constants"]["eta"] == 0.1
    assert told["constants"]["sample_spread"] == found["constants"]["sample_spread"]["value"]
    assert told["constants"]["B"] == found["run"]["B"]
    assert told["constants"]["L_G"] >= found["constants"]["sample_gradient"]["value"]
    found["constants"]["sample_spread"]["value"] = None
    Path("advice.json").write_text(json.dumps(found))
    assert (
        "give also --constant sample_spread"
        in fedkeel("bounds", "fedinit-12", "--advice", "advice.json", code=2).stderr
    )


@pytest.mark.slow
def test_fedsagd_s_own_momentum_and_rate_are_taken_and_what_no_theorem_covers_is_said(fedkeel):
    line = [*QUICK, "--method", "fedsagd(beta=0.5, lam=0.1, lr=0.25)", "--momentum", "0.9", "--clip", "5"]
    found = json.loads(fedkeel(*line, "--json").stdout)
    assert [found["run"][name] for name in ("momentum", "lam", "eta_g")] == [0.5, 0.1, 0.25]
    told = " ".join(found["caveats"])
    assert "No theorem here covers local momentum (0.9) or clipping to norm 5.0" in told
    Path("advice.json").write_text(json.dumps(found))
    constants = json.loads(fedkeel("bounds", "stability", "--advice", "advice.json", "--json").stdout)[
        "constants"
    ]
    assert (constants["momentum"], constants["lam"]) == (0.5, 0.1)


@pytest.mark.slow
def test_no_noise_and_full_participation_are_plain_answers(fedkeel):
    page = fedkeel(*QUICK, "--set", "work.batch_size=all", "--set", "cohort=6", "--beta", "0.05").stdout
    assert "every step takes all of a client's data: no noise" in page
    assert "σ_l² = 0, the floor of Theorem 4.7 is zero" in page
    assert "all clients active: holds" in page
    assert "|β| < 0.0727: holds" in page


def test_the_directory_of_a_stability_study_and_its_file_are_read(fedkeel):
    """Of several seeds a method has the mean; a study that is not one of stability is refused."""
    words = "--clients 6 --cohort 3 --rounds 2 --epochs 1 --model mlp(3) --engine serial --threads 1"
    asked = "--method fedavg --seeds 2 --held-out 2 --pairs 1 --samples 10 --out s"
    fedkeel("study", "stability", *shlex.split(words), *shlex.split(asked))
    kept = json.loads(Path("s/result.json").read_text())["numbers"]["methods"]
    mean = fmean(one["mean"][-1] for one in kept.values())
    assert read_stability(Path("s")) == {"FedAvg": (pytest.approx(mean), 2)}
    assert read_stability(Path("s/result.json")) == read_stability(Path("s"))
    advised = json.loads(fedkeel(*QUICK, "--stability", "s", "--json").stdout)["stability"]
    assert [row["measured"] for row in advised if row["method"] == "FedAvg"] == [pytest.approx(mean)]
    for directory, holds in (("s/fedavg", "no finished stability study"), (".", "no finished")):
        with pytest.raises(ConfigError, match=f"--stability {directory}: {holds}.*: give the directory of a"):
            read_stability(Path(directory))
    Path("s/result.json").write_text('{"study": "comparison", "numbers": {"methods": []}}')
    with pytest.raises(ConfigError, match="--stability s: holds a comparison: give the directory"):
        read_stability(Path("s"))


@pytest.mark.slow
def test_a_target_below_the_floor_gets_its_page_the_floor_and_exit_code_2(fedkeel):
    result = fedkeel(*QUICK, "--epsilon", "1e-25", code=2)
    assert "with the best steps:  nothing is promised" in result.stdout
    assert "lies below twice the lowest floor" in result.stderr
    assert "give ε ≥" in result.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--beta", "1.5"], "--beta 1.5: relaxed initialisation takes a β between -1 and 1"),
        (["--beta", "nan"], "--beta nan"),
        (["--epsilon", "0"], "--epsilon 0: give a finite loss above 0"),
        (["--alpha", "-1"], "--alpha -1: give a finite number above 0"),
        (["--stability", "none.json"], "--stability none.json: there is no such file"),
        (["--stability", "bad.json"], "--stability bad.json: holds other JSON"),
        (["--lr", "-1"], "lr = -1.0"),
        (["--cohort", "7"], "cohort = 7: there are 6 clients"),
    ],
)
def test_bad_input_exits_with_2(fedkeel, args, message):
    Path("bad.json").write_text('{"FedAvg": "small"}')
    result = fedkeel(*QUICK, *args, code=2)
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_the_constants_alone_are_those_the_adviser_uses(fedkeel):
    """`fedkeel study constants` measures what `advise` measures, and goes on from what is kept."""
    words = [word for word in QUICK[1:] if word != "20" or QUICK[QUICK.index(word) - 1] != "--rounds"]
    words.remove("--rounds")
    page = fedkeel("study", "constants", *words, "--out", "c").stdout
    assert "power iteration on Hessian-vector products" in page
    assert "frontier (α², β²):" in page
    assert "Largest safe" not in page
    assert "Page: c/page.html" in page
    alone = json.loads(fedkeel("study", "constants", *words, "--out", "c", "--json").stdout)
    fedkeel("report", "c", "--out", "again.html")
    for kept in (Path(alone["page"]), Path("again.html")):
        assert "Steepness, whose lowest value is τ1" in kept.read_text()
    advised = json.loads(fedkeel(*QUICK, "--json").stdout)
    assert alone["constants"] == advised["constants"]
    assert (
        "belongs to another"
        in fedkeel("study", "constants", *words, "--out", "c", "--lr", "1", code=6).stderr
    )


@pytest.mark.slow
@pytest.mark.parametrize(("cohort", "largest"), [("3", "0.25"), ("6", "0")])
def test_an_adaptive_beta_is_judged_by_its_largest(fedkeel, cohort, largest):
    page = fedkeel(*QUICK, "--cohort", cohort, "--method", "fedinit(beta=Adaptive(0.5))").stdout
    assert f"(asked: β = {largest})" in page
