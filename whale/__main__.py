"""`python -m whale`."""

from whale.cli.__main__ import main

main()
