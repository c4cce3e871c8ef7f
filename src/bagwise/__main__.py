"""`python -m bagwise` is `bagwise`."""

from bagwise.cli import run

run()
