"""Explains any method as equations that are traced from its code, with its costs and knobs."""

from fedkeel.explain.explanation import Explanation, StagedExplanation, about, explain, explain_method, knobs

__all__ = ["Explanation", "StagedExplanation", "about", "explain", "explain_method", "knobs"]
