"""The words of torch: modules and functions of tensors, in double precision but for the layers of networks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from bagwise.data.features import Encoding
from bagwise.export.formula import CannotExportError
from bagwise.export.trees import Share
from bagwise.utils.typing import Floats

Number: TypeAlias = Callable[[Tensor], Tensor]  # what becomes of codes


def layers_of(module: nn.Module) -> Iterator[nn.Module]:
    """The layers of a network that follow one another, those of ours in the order of their work."""
    if isinstance(module, nn.Sequential):
        for one in module:
            yield from layers_of(one)
    else:
        yield module


class Whole(nn.Module):
    """From rows to predictions; parts: what has weights."""

    def __init__(self, found: Number, parts: Sequence[nn.Module], flat: bool) -> None:
        super().__init__()
        self.found, self.parts, self.flat = found, nn.ModuleList(parts), flat

    def forward(self, rows: Tensor) -> Tensor:
        """(rows,) or (rows, classes)."""
        h = self.found(rows)
        return h[:, 0] if self.flat else h


class _Encoded(nn.Module):
    """What `Encoding` makes of codes, in single precision as it does."""

    def __init__(self, encoding: Encoding) -> None:
        super().__init__()
        self.encoding = encoding
        for name in ("low", "span", "fill"):
            self.register_buffer(name, torch.tensor(getattr(encoding, name), dtype=torch.float64))
        for number, levels in enumerate(encoding.levels):
            if levels is not None:
                self.register_buffer(f"levels_{number}", torch.tensor(levels, dtype=torch.float64))

    def forward(self, codes: Tensor) -> Tensor:
        """(rows, width)."""
        gap = torch.isnan(codes)
        scaled = torch.where(gap, self.get_buffer("fill"), (codes - self.get_buffer("low")) / self.get_buffer("span"))
        parts = []
        for number, levels in enumerate(self.encoding.levels):
            one = slice(number, number + 1)
            if levels is not None:
                parts.append((codes[:, one] == self.get_buffer(f"levels_{number}")).double())
                continue
            parts += [scaled[:, one]] + ([gap[:, one].double()] if self.encoding.missing[number] else [])
        return torch.cat(parts, dim=1).float()


class _Linear(nn.Module):
    def __init__(self, coef: Floats, intercept: Floats) -> None:
        super().__init__()
        self.register_buffer("coef", torch.tensor(coef.T.copy(), dtype=torch.float64))
        self.register_buffer("intercept", torch.tensor(intercept, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x.double() @ self.get_buffer("coef") + self.get_buffer("intercept")


class Program:
    """Words of torch; a number is what becomes of codes."""

    name = "torch"

    def __init__(self) -> None:
        self.parts: list[nn.Module] = []

    def _keep(self, part: Any) -> Any:
        self.parts.append(part)
        return part

    def _read(self, encoding: Encoding | None) -> Number:
        encoded: Number = (lambda codes: codes) if encoding is None else self._keep(_Encoded(encoding))
        return encoded

    def linear(self, encoding: Encoding | None, coef: Floats, intercept: Floats) -> Number:
        """See `Words`."""
        read, linear = self._read(encoding), self._keep(_Linear(np.asarray(coef), np.asarray(intercept)))
        return lambda codes: linear(read(codes))

    def trees(self, outputs: Sequence[Sequence[Share]], constant: Floats) -> Number:
        """See `Words`."""
        raise CannotExportError("trees are no network that torch has words for: take onnx, sql or lightgbm.")

    def network(self, encoding: Encoding | None, module: Any) -> Number:
        """See `Words`."""
        read, ours = self._read(encoding), any(type(one).__name__ == "Standardise" for one in layers_of(module))
        # Ours work in pieces, by the number of rows, which a program is not to depend on.
        plain = nn.Sequential(*layers_of(module)) if ours else module
        network = self._keep(copy.deepcopy(plain).cpu().eval())
        dtype = torch.float64 if ours else next((one.dtype for one in network.parameters()), torch.float32)

        def said(codes: Tensor) -> Tensor:
            found: Tensor = network(read(codes).to(dtype))
            return found.double() if found.ndim > 1 else found.double()[:, None]

        return said

    def moved(self, number: Number, factor: Floats | float, shift: Floats | float) -> Number:
        """See `Words`."""
        by, to = (torch.as_tensor(np.asarray(one, dtype=float)) for one in (factor, shift))
        return lambda codes: by * number(codes) + to

    def added(self, numbers: Sequence[Number]) -> Number:
        """See `Words`."""
        return lambda codes: torch.stack([one(codes) for one in numbers]).sum(dim=0)

    def clipped(self, number: Number, low: Floats | float | None, high: Floats | float | None) -> Number:
        """See `Words`."""
        least, most = (None if one is None else torch.as_tensor(np.asarray(one, dtype=float)) for one in (low, high))
        return lambda codes: torch.clip(number(codes), least, most)

    def sigmoid(self, number: Number) -> Number:
        """See `Words`."""
        return lambda codes: torch.sigmoid(number(codes))

    def logit(self, number: Number) -> Number:
        """See `Words`."""
        return lambda codes: torch.logit(number(codes))

    def exp(self, number: Number) -> Number:
        """See `Words`."""
        return lambda codes: torch.exp(number(codes))

    def log(self, number: Number) -> Number:
        """See `Words`."""
        return lambda codes: torch.log(number(codes))

    def softmax(self, number: Number) -> Number:
        """See `Words`."""
        return lambda codes: torch.softmax(number(codes), dim=1)

    def shares(self, number: Number) -> Number:
        """See `Words`."""

        def said(codes: Tensor) -> Tensor:
            h = number(codes)
            return h / h.sum(dim=1, keepdim=True)

        return said
