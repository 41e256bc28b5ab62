"""`python -m fedkeel` is the command line."""

from fedkeel.cli import main

main()
