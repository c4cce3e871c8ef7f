"""The oldest versions that pyproject.toml allows, as constraints for pip: `python tests/oldest.py`."""

import re
import tomllib
from pathlib import Path

EXTRAS = ("neural", "privacy", "dev")


def oldest() -> list[str]:
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    extras = [one for name in EXTRAS for one in project["optional-dependencies"][name]]
    found = [re.fullmatch(r"([\w.-]+)>=([\w.]+)", one) for one in (*project["dependencies"], *extras)]
    return [f"{one[1]}=={one[2]}" for one in found if one is not None]


if __name__ == "__main__":
    print("\n".join(oldest()))
