"""The interaction tensor against its definition, written out with loops."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from problems import settings_of

import fedkeel as fk
from fedkeel.running.session import Session
from fedkeel.settings.run_settings import RunSettings
from fedkeel.studies.interaction import FeatureSettings, FeatureSnapshot, interaction, read_interaction, study


def by_hand(
    models: list[np.ndarray], K: int, gamma_corr: float, *, signed: bool = False
) -> tuple[np.ndarray, list[set[tuple[int, int]]]]:
    """Ω and the clusters, straight from Rethinking §3.3 and the specification."""
    v = []
    for phi in models:
        eigenvalues, vectors = np.linalg.eigh(phi.T @ phi)
        v.append(phi @ vectors[:, np.argsort(-eigenvalues)[:K]])
    clusters: list[set[tuple[int, int]]] = []
    for m in range(len(models)):
        for a in range(K):
            for cluster in clusters:
                rho = [abs(np.corrcoef(v[m][:, a], v[j][:, b])[0, 1]) for j, b in cluster if j != m]
                if any(r > gamma_corr for r in rho):
                    cluster.add((m, a))
                    break
            else:
                clusters.append({(m, a)})
    size = [np.abs(one) / np.abs(one).max(axis=0) for one in v]
    if signed:
        largest = [[column[np.argmax(np.abs(column))] for column in one.T] for one in v]
        size = [one / np.array(top) for one, top in zip(v, largest, strict=True)]
    bound = np.percentile(np.stack(size), 90)
    omega = np.zeros((len(models), len(models[0]), len(clusters)), dtype=bool)
    for f, cluster in enumerate(clusters):
        for m, k in cluster:
            for n in range(len(models[0])):
                omega[m, n, f] |= size[m][n, k] > bound
    return omega, clusters


def related_models() -> list[np.ndarray]:
    """Features of four models on 60 points, partly common."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=(60, 6))
    return [common @ rng.normal(size=(6, 9)) + 0.7 * rng.normal(size=(60, 9)) for _ in range(4)]


@pytest.mark.parametrize("gamma_corr", [0.3, 0.5, 0.8])
def test_the_tensor_is_its_definition(gamma_corr: float) -> None:
    models = related_models()
    found = interaction(models, components=5, gamma_corr=gamma_corr)
    omega, clusters = by_hand(models, 5, gamma_corr)
    np.testing.assert_array_equal(found.omega, omega)
    assert found.features == len(clusters)
    for f, cluster in enumerate(clusters):
        assert cluster == {(m, k) for m in range(4) for k in range(5) if found.clusters[m, k] == f}
    frequency = [len({m for m, k in cluster if omega[m, :, f].any()}) for f, cluster in enumerate(clusters)]
    assert found.histogram == [frequency.count(c) for c in range(1, 5)]
    assert found.shared(0, 3) == sum(
        bool(omega[0, :, f].any() and omega[3, :, f].any()) for f in range(len(clusters))
    )


def test_equal_models_have_one_cluster_a_component_and_unlike_ones_many() -> None:
    rng = np.random.default_rng(1)
    phi = rng.normal(size=(200, 8)) * np.arange(8, 0, -1)
    same = interaction([phi, phi, phi], components=4)
    assert same.features == 4
    assert same.histogram == [0, 0, 4]
    unlike = interaction([rng.normal(size=(200, 8)) for _ in range(3)], components=4)
    assert unlike.features == 12


def test_entries_may_count_with_their_sign() -> None:
    """The paper's words to the letter: v / max|v| above the 90th percentile of all such entries."""
    models = related_models()
    signed = interaction(models, components=5, entries="signed")
    omega, _ = by_hand(models, 5, 0.5, signed=True)
    np.testing.assert_array_equal(signed.omega, omega)
    plain = interaction(models, components=5)
    np.testing.assert_array_equal(signed.clusters, plain.clusters)  # correlations do not depend on it
    assert not np.array_equal(signed.omega, plain.omega)
    flipped = interaction([-phi for phi in models], components=5, entries="signed")
    np.testing.assert_array_equal(flipped.omega, omega)  # nor does the tensor on the arbitrary sign
    with pytest.raises(fk.ConfigError, match="entries = 'squared': choose one of absolute, signed"):
        interaction(models, components=5, entries="squared")  # type: ignore[arg-type]


def test_centring_is_an_argument() -> None:
    rng = np.random.default_rng(2)
    models = [rng.normal(size=(50, 5)) + 10 for _ in range(2)]
    assert not np.array_equal(
        interaction(models, components=3).omega, interaction(models, components=3, centre=True).omega
    )
    with pytest.raises(fk.ConfigError, match="span at most 5 directions"):
        interaction(models, components=6)


def digits_run(splitter: Any, algorithm: fk.Algorithm, **options: Any) -> RunSettings:
    """The settings of a run on digits, over ten clients."""
    federation = fk.data.load("digits").split(splitter, clients=10, seed=0)
    task = fk.Task(fk.models.build("mlp", shape=(64,), classes=10, seed=0))
    return settings_of(task, federation, algorithm, **options)


def snapshots(
    *, seed: int = 0, directory: Path | None = None, progress: Any = None, **options: Any
) -> list[FeatureSnapshot]:
    """The study of a short run of FedDyn, with snapshots after rounds 2 and 4."""
    work = fk.Work(epochs=1, batch_size=20, lr=0.1)
    settings = digits_run(fk.DirichletByClass(0.1), fk.FedDyn(), rounds=4, cohort=5, work=work, seed=seed)
    features = FeatureSettings(**{"every": 2, "points": 200, "components": 10, **options})
    return list(study(settings, features=features, directory=directory, progress=progress))


@pytest.mark.slow
def test_the_study_of_a_run() -> None:
    found = snapshots()
    assert [snapshot.round for snapshot in found] == [2, 4]
    for snapshot in found:
        assert sum(snapshot.histogram) == snapshot.features
        assert len(snapshot.histogram) == 7
        assert 0 < snapshot.local_current <= 10
        counts = [count for _, count in snapshot.sweep]
        assert counts == sorted(counts)  # a stricter correlation leaves more features apart
        assert dict(snapshot.sweep)[0.5] == snapshot.features


@pytest.mark.slow
def test_the_tensor_of_every_snapshot_is_in_the_directory(tmp_path: Path) -> None:
    """How entries are read decides which points contain a feature, and no number of a snapshot."""
    plain, signed = (
        snapshots(directory=tmp_path / entries, entries=entries) for entries in ("absolute", "signed")
    )
    assert plain == signed
    for snapshot in plain:
        tensor, other = (read_interaction(tmp_path / name, snapshot.round) for name in ("absolute", "signed"))
        assert tensor.omega.shape == (7, 200, snapshot.features)  # five clients, the models before and after
        assert tensor.histogram == snapshot.histogram
        assert tensor.shared(0, 6) == snapshot.current_next
        np.testing.assert_array_equal(tensor.clusters, other.clusters)
        assert not np.array_equal(tensor.omega, other.omega)
    with pytest.raises(fk.StorageError, match="holds no tensor of round 3: it has 2, 4"):
        read_interaction(tmp_path / "absolute", 3)


@pytest.mark.slow
def test_a_kept_study_is_the_same_and_trains_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To be killed at any instant is in test_kill_studies.py."""
    found = snapshots(directory=tmp_path)
    assert found == snapshots()
    monkeypatch.setattr(Session, "rounds", None)
    assert snapshots(directory=tmp_path) == found


@pytest.mark.slow
def test_a_damaged_snapshot_is_taken_again(tmp_path: Path) -> None:
    found = snapshots(directory=tmp_path)
    for damage in (b"", b'0123 {"round": 2', b"\xff\xfe"):
        (tmp_path / "round-00000002.json").write_bytes(damage)
        with pytest.warns(UserWarning, match="is damaged, or of another study, and is made again"):
            assert snapshots(directory=tmp_path) == found


@pytest.mark.slow
def test_an_interrupted_study_keeps_the_rounds_it_has_played(tmp_path: Path) -> None:
    played: list[int] = []

    def interrupt(row: dict[str, Any]) -> None:
        played.append(row["round"])
        if len(played) == 3:
            raise KeyboardInterrupt

    with pytest.raises(fk.Stopped, match="stopped after 3 of 4 rounds"):
        snapshots(directory=tmp_path, progress=interrupt)
    assert snapshots(directory=tmp_path, progress=interrupt) == snapshots()
    assert played == [0, 1, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"points": 100}, "its points is 200, not 100"),
        ({"every": 4}, "its every is 2, not 4"),
        ({"seed": 1}, "its seed is 0, not 1"),
        ({"gammas": (0.5,)}, "its gammas is"),
        ({"entries": "signed"}, "its entries is 'absolute', not 'signed'"),
    ],
)
def test_a_directory_of_other_arguments_is_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    snapshots(directory=tmp_path)
    with pytest.raises(fk.StorageError, match=f"belongs to another interaction study: {message}"):
        snapshots(directory=tmp_path, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 5}, "every = 5, but the run has 4 rounds"),
        ({"components": 500}, "components = 500, but the features span at most"),
        ({"gamma_corr": 1.5}, "gamma_corr = 1.5: give a number between 0 and 1"),
        ({"gammas": (0.5, 0.0)}, "gamma_corr = 0.0"),
        ({"entries": "squared"}, "FeatureSettings: entries = 'squared'"),
    ],
)
def test_what_cannot_work_is_refused_before_the_run_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr(Session, "rounds", None)
    with pytest.raises(fk.ConfigError, match=message):
        snapshots(directory=tmp_path / "s", **options)
    assert not (tmp_path / "s").exists()


def test_snapshots_come_as_they_are_taken() -> None:
    work = fk.Work(steps=1, batch_size=20)
    settings = digits_run(fk.IID(), fk.FedAvg(), rounds=1000, cohort=2, work=work)
    taken = study(settings, features=FeatureSettings(every=1, points=50))
    assert [snapshot.round for snapshot in islice(taken, 2)] == [1, 2]
