"""The command `fedkeel`, also as `python -m fedkeel`."""

import sys

from fedkeel.interrupts import stoppable


def main() -> None:
    """Run the command line; Ctrl-C, SIGTERM and SIGHUP end it in a word, even while modules are imported."""
    try:
        with stoppable():
            from fedkeel.cli import main as command_line  # noqa: PLC0415

            command_line()
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
