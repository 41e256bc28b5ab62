"""An app for tests."""
