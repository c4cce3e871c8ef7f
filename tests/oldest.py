"""The oldest versions that pyproject.toml allows, as constraints for pip: `python tests/oldest.py [name==version …]`.

Those given take the place of versions that cannot be had.
"""

import re
import sys
import tomllib
from pathlib import Path

EXTRAS = ("neural", "privacy", "onnx", "sql", "dev")


def oldest(given: list[str]) -> list[str]:
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    extras = [one for name in EXTRAS for one in project["optional-dependencies"][name]]
    found = [re.fullmatch(r"([\w.-]+)>=([\w.]+)", one) for one in (*project["dependencies"], *extras)]
    versions = dict(one.groups() for one in found if one is not None)
    versions |= dict(one.split("==") for one in given)
    return [f"{name}=={version}" for name, version in versions.items()]


if __name__ == "__main__":
    print("\n".join(oldest(sys.argv[1:])))
