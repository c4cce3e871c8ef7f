"""Saved models: a folder that can be read without running any code.

`save` writes a folder, `load` reads it back; predictions are then equal bit for bit. `inspect` tells what a folder
holds and builds nothing. The folder holds

- `model.json`: ``format`` (its version), ``kind`` (the class), ``versions`` of the libraries, ``about`` (facts given to
  `save`: columns, how it was trained, how good it is), ``parameters`` and ``fitted`` attributes, and the size and
  SHA-256 checksum of every other file and of this one;
- `arrays.safetensors`: NumPy's arrays and torch's tensors;
- `trees-0.txt`, …: LightGBM models in LightGBM's own text.

A file names classes but never brings code along: only classes of the table in `saving.kinds` are built. A class of
your own is added by `register`, in your program, before `load`. Checksums find damage; they are no signature, so what
comes from elsewhere is also checked before it is used: damaged or hostile folders end in one sentence, a ValueError
or an OSError. Files of a model lie in its folder themselves: links, pipes and devices are refused. Other files in the
folder do not matter.

What can be saved: None, bool, int, float, str, lists, tuples, dicts, NumPy scalars and arrays (object
arrays of those too), torch tensors, LightGBM boosters, and objects of known classes. Random generators are saved as
None: a model that was fitted with one gives the same predictions, a clone of the loaded one draws anew. What was set
by scikit-learn's ``set_fit_request`` is not saved.

How an object of a known class is taken apart:

- it has ``_to_state(self) -> dict`` and a class method ``_from_state(cls, state)``: the dict, made of what can be
  saved, is all that is kept; ``_from_state`` builds the object from it. An estimator with parts that no file can
  hold, such as a user's torch module, takes them by name, ``_from_state(cls, state, *, module=None)``, gets what the
  user gave to ``load(folder, module=…)``, and raises a ValueError that asks for it where it is missing;
- a dataclass: its fields;
- another estimator: its parameters and all other attributes of the instance.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from bagwise.saving.codec import Decoder, Encoder
from bagwise.saving.folder import check_free, facts, read, write
from bagwise.saving.kinds import register, require, require_known, short
from bagwise.saving.soundness import check_predicts
from bagwise.utils.parameters import FLAG, check_parameters, instance

__all__ = ["Saved", "check_free", "inspect", "load", "register", "save"]


def save(
    model: Any,
    folder: str | os.PathLike[str],
    *,
    force: bool = False,
    about: dict[str, Any] | None = None,
    redact: bool = False,
) -> None:
    """Save a fitted model as a folder that `load` reads without running code.

    The folder appears whole or not at all.

    Parameters
    ----------
    model : estimator or TableModel
        A fitted estimator of bagwise, or of a class that was registered; or a `bagwise.tables.TableModel`.
    folder : path
        Where to; it must not exist.
    force : bool
        Replace the folder if it is itself a saved model, and holds nothing else.
    about : dict, optional
        Facts to keep beside the model, such as its columns, how it was trained and how good it is: finite numbers,
        strings, True, False, None, and lists and dicts of them. `inspect` returns them.
    redact : bool
        Leave out what is kept of the training data and not needed to predict: sums over bags that updates and the
        intervals of ridge need, the checksum by which a model's own bags are known again, keys of bags that did not
        fit, least and greatest values of columns that LightGBM writes beside trees. The model that `load` returns
        predicts the same, bit for bit; a linear one cannot be updated any more. What predictions need stays, and may
        tell of single rows: levels of categories, also rare ones, values that trees split at, and the least and
        greatest numbers and first and last times that columns are scaled and held by. So does `about`, which is what
        you say.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import bagwise as bw
    >>> X = np.random.default_rng(0).normal(size=(640, 2))
    >>> ids = bw.random_bags(640, size=16, random_state=0)
    >>> model = bw.BagRidgeClassifier().fit(X, bw.aggregate(X[:, 0] > 0, ids), bags=ids)
    >>> with tempfile.TemporaryDirectory() as place:
    ...     save(model, f"{place}/model")
    ...     again = load(f"{place}/model")
    >>> bool((again.predict_proba(X) == model.predict_proba(X)).all())
    True
    """
    require_known(model)
    if isinstance(model, BaseEstimator):
        check_is_fitted(model)
    check_parameters({"redact": redact}, {"redact": FLAG})
    told, place, encoder = facts(about), check_free(folder, force=force), Encoder(redact=redact)
    document = {**encoder.encode_object(model), "about": told}
    write(place, document, encoder.files(), force=force)


def load(folder: str | os.PathLike[str], *, module: Any = None) -> Any:
    """Read the model that `save` wrote. Runs no code but that of the installed classes.

    Parameters
    ----------
    folder : path
        As given to `save`.
    module : torch.nn.Module, optional
        The torch module of a network of your own, which no file can hold: a new one of the same shape, whose weights
        are then those that were saved.

    Returns
    -------
    estimator or TableModel
        The model; its predictions are equal bit for bit.

    Raises
    ------
    OSError
        Where there is nothing to read.
    ValueError
        Where the folder is not a sound model.
    """
    with _telling(folder) as place:
        document, files = read(place)
        decoder = Decoder(files, module)
        model = decoder.decode_model(document)
        require(module is None or decoder.used_module, "module was given, but this model takes none")
        check_predicts(model)
    return model


@dataclass(frozen=True)
class Saved:
    """What a saved model tells about itself.

    Attributes
    ----------
    kind : str
        The name of its class.
    format : int
        The version of the folder's format.
    versions : dict
        Of the libraries that saved it, by name.
    about : dict
        The facts that were given to `save`.
    files : dict
        How many bytes each file has, by name.
    """

    kind: str
    format: int
    versions: dict[str, str]
    about: dict[str, Any]
    files: dict[str, int]


def inspect(folder: str | os.PathLike[str]) -> Saved:
    """Tell what a folder holds, checked for damage as `load` does, without building the model.

    The kind may be one that only its own program knows (see `register`): whether it can be built, `load` finds out.

    Parameters
    ----------
    folder : path
        As given to `save`.

    Returns
    -------
    Saved
        Kind, versions, facts and files.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import bagwise as bw
    >>> model = bw.BagRidgeClassifier().fit(np.arange(40.0)[:, None], np.arange(40) % 2)
    >>> with tempfile.TemporaryDirectory() as place:
    ...     save(model, f"{place}/model", about={"columns": ["age"]})
    ...     saved = inspect(f"{place}/model")
    >>> saved.kind, saved.about
    ('BagRidgeClassifier', {'columns': ['age']})
    >>> sorted(saved.files)
    ['arrays.safetensors', 'model.json']
    """
    with _telling(folder) as place:
        document, files = read(place)
        kind, versions = document["kind"], document.get("versions")
        require(isinstance(kind, str), f"it names the kind {short(kind)}, which is none")
        if not (isinstance(versions, dict) and all(isinstance(version, str) for version in versions.values())):
            raise ValueError("it does not tell which versions saved it")
        sizes = {name: len(data) for name, data in files.items()}
    return Saved(kind, document["format"], versions, document["about"], sizes)


@contextmanager
def _telling(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Whatever damage makes the libraries raise, the user gets one sentence."""
    check_parameters({"folder": folder}, {"folder": instance((str, os.PathLike), "the path of a folder")})
    place = Path(folder)
    try:
        yield place
    except OSError:
        raise
    except MemoryError:
        raise ValueError(f"{place} cannot be loaded: there is not enough memory for it.") from None
    except ValueError as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise ValueError(f"{place} cannot be loaded: {reason if len(reason) <= 400 else reason[:399] + '…'}.") from None
    except Exception as error:
        raise ValueError(f"{place} cannot be loaded: it is damaged ({type(error).__name__}).") from None
