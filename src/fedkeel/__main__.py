"""The command `fedkeel`, also as `python -m fedkeel`."""

import sys

from fedkeel.common.interrupts import raise_on_signals


def main() -> None:
    """Run the command line; Ctrl-C, SIGTERM and SIGHUP end it in a word, even while modules are imported.

    To the very end: a second signal, as of a terminal that is closed, finds the first one dealt with.
    """
    try:
        raise_on_signals()
        from fedkeel.cli import main as command_line  # noqa: PLC0415

        command_line()
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
