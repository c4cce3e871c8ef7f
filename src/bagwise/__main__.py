"""`python -m bagwise` is `bagwise`."""

from bagwise.cli import app

app(prog_name="bagwise")
