"""The columns of a history that a run and its probes write themselves, so that no metric may take their name.

Names with a "/" are of probes (`losses/train`) and of further models of a method (`loss/gamma`).
"""

RUN_COLUMNS = (
    "round",
    "stage",
    "cohort",
    "loss",
    "train_loss",
    "norm",
    "lr",
    "gradients",
    "bytes_down",
    "bytes_up",
    "seconds",
)
PROBE_COLUMNS = ("global_update", "local_updates", "drift", "divergence", "diversity")
COLUMNS = RUN_COLUMNS + PROBE_COLUMNS
