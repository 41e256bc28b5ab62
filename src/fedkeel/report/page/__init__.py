"""The page: plain data, one template, one style sheet, one script for everything that fedkeel shows."""
