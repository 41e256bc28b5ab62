"""Explains any method as equations that are traced from its code, with its costs and settings."""

from fedkeel.explain.explanation import (
    Explanation,
    StagedExplanation,
    about,
    explain,
    explain_method,
    method_settings,
)

__all__ = ["Explanation", "StagedExplanation", "about", "explain", "explain_method", "method_settings"]
