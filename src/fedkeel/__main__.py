"""The command `fedkeel`, also as `python -m fedkeel`."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it quietly even while modules are still being imported."""
    try:
        from fedkeel.cli import main as command_line  # noqa: PLC0415

        command_line()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
