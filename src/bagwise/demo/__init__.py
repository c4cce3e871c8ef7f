"""The main job told as a story: `run` does it, `bagwise demo` prints it."""

from bagwise.demo.walkthrough import DemoResult, Row, run

__all__ = ["DemoResult", "Row", "run"]
