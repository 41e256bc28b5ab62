"""The papers' tables and figures as recipes, and how their claims are judged. Nothing below imports this."""
