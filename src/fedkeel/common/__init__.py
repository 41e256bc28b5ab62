"""Files, JSON, TOML, errors, progress and names: what every floor uses and what knows nothing of learning."""
