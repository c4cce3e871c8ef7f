"""Packages that only some need."""

from importlib.util import find_spec


def needed(package: str, extra: str, what: str) -> None:
    """Raise, with the command that installs it, unless a package is there.

    >>> needed("numpy", "all", "arrays")
    >>> needed("no_such_package", "some", "wonders")
    Traceback (most recent call last):
    ModuleNotFoundError: wonders need no_such_package: pip install 'bagwise[some]'.
    """
    if find_spec(package) is None:
        raise ModuleNotFoundError(f"{what} need {package}: pip install 'bagwise[{extra}]'.", name=package)
